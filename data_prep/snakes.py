"""Draws Pathfinder images like those of Long Range Arena, with numba.

Curves are chains of short lines, the paddles. An image shows two long curves,
the target snakes, and some short ones, the distractors. Two discs mark ends of
target snakes: of one snake (label 1) or of both (label 0). The random process
is that of the program that made the arena's images (Linsley et al. 2018, arXiv
1805.08315), with its apparent mistakes.

M is a map of the taken places, [side, side]: 0 is free, 1 is paint or too near
to paint. The pivot of a paddle lies `margin` pixels before its near end. A
snake is float64 [7]. 0 and 1: pivot y and x. 2: orientation. 3 and 4: tip y and
x. 5: whether the last paddle is of the ring. 6: the index of its stamp.
"""

import collections
import math

import numba
import numpy as np

from lra.data_prep import stamps

_FREE = 0.3  # largest M where a first paddle may be
_FULL = 1.8  # M plus the mask of a new paddle must stay below this
_LEAST = 1e-4  # smallest sum of the weights of all places for a new paddle
_ROOM = 0.01  # share of free pixels below which no distractor is tried
_TRIES = 3  # tries to place the tail of a first paddle
_BLIND = 30  # random draws of a place before all places are searched


# The stamps of a margin, as `stamps.first` and `stamps.ring` return them, and
# `near`, the offsets, int64 [K, 2], that are at most `margin` away.
_Tables = collections.namedtuple(
    '_Tables', 'length margin first points phi ring near')
# Parameters of `stamps.Law`, in the types of the compiled functions.
_Plan = collections.namedtuple('_Plan', (
    'side padding distance contour continuity short distractors bright '
    'contrast draws attempts'))


class Artist:
  """Draws images; threads may share an artist."""

  def __init__(self, law: stamps.Law, seed: int = 0):
    self.seed = seed
    self._tables = [_Tables(
        law.paddle_length, margin, stamps.first(law, margin),
        *stamps.ring(law, margin), np.argwhere(stamps.disc(margin)) - margin)
                    for margin in law.margins]
    self._marker = stamps.marker(law)
    self._plan = _Plan(
        law.side, law.padding, law.seed_distance, law.contour_length,
        law.continuity, law.distractor_length, law.distractors,
        law.snake_contrast * law.paddle_contrast, law.snake_contrast,
        law.paddle_retries + 1, law.distractor_retries + 1)

  def draw(self, number: int) -> tuple[np.ndarray, int, int, int]:
    """Draws image `number`, which depends only on it, the law and the seed.

    Returns:
      The image, uint8 [side, side], 0 to 255; its label; the number of attempts
      at its target snakes; the number of distractors that found room.
    """
    rng = np.random.default_rng([self.seed, number])
    tables = self._tables[int(rng.random() * len(self._tables))]
    image, tips, ends, attempts, placed = _scene(rng, tables, self._plan)
    label, snake = int(rng.random() * 2), int(rng.random() * 2)
    other = snake if label else 1 - snake
    for y, x in (tips[snake], ends[other]):
      _paint(image, self._marker, y, x, 1.0)
    low, high = image.min(), image.max()
    image = np.uint8(np.round((image - low) * (255 / (high - low))))
    return image, label, attempts, placed


def _compiled(function):
  try:
    return numba.njit(cache=True, nogil=True)(function)
  except RuntimeError:  # numba finds no folder for its cache
    return numba.njit(function, nogil=True)


@_compiled
def _moved(y, x, phi, distance):
  return (math.ceil(y + distance * math.sin(phi)),
          math.ceil(x + distance * math.cos(phi)))


@_compiled
def _inside(y, x, side):
  return 0 <= y < side and 0 <= x < side


@_compiled
def _paint(image, stamp, y, x, contrast):
  """Sets image to max(image, contrast * stamp around (y, x))."""
  side, half = len(image), len(stamp) // 2
  for i in range(max(0, half - y), min(len(stamp), side + half - y)):
    for j in range(max(0, half - x), min(len(stamp), side + half - x)):
      value = contrast * stamp[i, j]
      if value > image[y + i - half, x + j - half]:
        image[y + i - half, x + j - half] = value


@_compiled
def _fits(m, stamp, y, x):
  """Returns whether M plus a mask around (y, x) stays under _FULL."""
  side, half = len(m), len(stamp) // 2
  for i in range(max(0, half - y), min(len(stamp), side + half - y)):
    for j in range(max(0, half - x), min(len(stamp), side + half - x)):
      if m[y + i - half, x + j - half] + stamp[i, j] >= _FULL:
        return False
  return True


@_compiled
def _free(m, y, x, near, count, border):
  """Returns whether a first paddle may have its tail at (y, x)."""
  side = len(m)
  for k in range(count):
    i, j = y + near[k, 0], x + near[k, 1]
    if not _inside(i, j, side):
      continue
    edge = min(i, j, side - 1 - i, side - 1 - j)
    if edge < border or m[i, j] > _FREE:
      return False
  return True


@_compiled
def _first(rng, m, tables, border, found):
  """Samples the first paddle: (ok, orientation, tail y, x, pivot y, x).

  `ok` is False if no place was found. `border` rows and columns at each edge
  stay free. `found`, int64 [side * side, 2], is scratch memory.
  """
  first, side = tables.first, len(m)
  which = int(rng.random() * len(first.phi))
  if not first.usable[which]:
    return False, which, 0, 0, 0, 0
  for _ in range(_TRIES):
    ok, y, x = _place(
        rng, m, first.near[which], first.counts[which], border,
        max(0, border - tables.length - tables.margin), found)
    if not ok:
      break
    ok, py, px = _pivot(tables, y, x, first.phi[which], side)
    if ok:
      return True, which, y, x, py, px
  return False, which, 0, 0, 0, 0


@_compiled
def _place(rng, m, near, count, border, start, found):
  """Samples a free place for a tail, uniformly: (whether found, y, x).

  Random draws find a place quickly if much is free. Places are `start` pixels
  or more from the edges.
  """
  side = len(m)
  for _ in range(_BLIND):
    y = start + int(rng.random() * (side - 2 * start))
    x = start + int(rng.random() * (side - 2 * start))
    if _free(m, y, x, near, count, border):
      return True, y, x
  total = 0
  for y in range(start, side - start):
    for x in range(start, side - start):
      if _free(m, y, x, near, count, border):
        found[total, 0], found[total, 1] = y, x
        total += 1
  if not total:
    return False, 0, 0
  place = int(rng.random() * total)
  return True, found[place, 0], found[place, 1]


@_compiled
def _pivot(tables, y, x, phi, side):
  # Of a first paddle: whether head and pivot are inside, pivot y, x.
  hy, hx = _moved(y, x, phi, tables.length)
  py, px = _moved(hy, hx, phi + math.pi, tables.length + tables.margin)
  return _inside(hy, hx, side) and _inside(py, px, side), py, px


@_compiled
def _next(rng, m, tables, plan, snake, weights):
  """Samples the next paddle: (index in the ring, pivot y, x); -1 if no room.

  The far end is sampled in proportion to `weights`, which this function fills.
  They favour going straight and are small near paint.
  """
  points, near, side = tables.points, tables.near, len(m)
  py, px = _moved(int(snake[0]), int(snake[1]), snake[2],
                  tables.length + 2 * tables.margin)
  total = 0.0
  for k in range(len(points)):
    y, x = py + points[k, 0], px + points[k, 1]
    weights[k] = 0.0
    if _inside(y, x, side):
      turn = abs(tables.phi[k] - snake[2])
      turn = min(turn, 2 * math.pi - turn)
      straight = max(math.cos(min(plan.continuity * turn, math.pi / 2)), 0.0)
      paint = 0.0
      for n in range(len(near)):
        i, j = y + near[n, 0], x + near[n, 1]
        if _inside(i, j, side):
          paint = max(paint, m[i, j])
      weights[k] = (1 - paint) * straight ** 2
    total += weights[k]
  if total < _LEAST:
    return -1, py, px
  for _ in range(plan.draws):
    left, k = rng.random() * total, -1
    while left >= 0 and k < len(points) - 1:
      k += 1
      left -= weights[k]
    if _fits(m, tables.ring.masks[k], py + points[k, 0], px + points[k, 1]):
      return k, py, px
  return -1, py, px


@_compiled
def _grow(rng, image, m, tables, plan, snake, contrast, weights):
  """Adds a paddle to a snake; returns whether there was room."""
  k, py, px = _next(rng, m, tables, plan, snake, weights)
  if k < 0:
    return False
  y, x = py + tables.points[k, 0], px + tables.points[k, 1]
  _paint(image, tables.ring.lines[k], y, x, contrast)
  _keep_off(m, tables, snake)
  snake[0], snake[1], snake[2] = py, px, tables.phi[k]
  snake[3], snake[4], snake[5], snake[6] = y, x, 1, k
  return True


@_compiled
def _keep_off(m, tables, snake):
  # Marks the last paddle of a snake as taken.
  masks = tables.ring.masks if snake[5] else tables.first.masks
  _paint(m, masks[int(snake[6])], int(snake[3]), int(snake[4]), 1.0)


@_compiled
def _begin(image, tables, snake, which, y, x, py, px, contrast):
  _paint(image, tables.first.lines[which], y, x, contrast)
  snake[0], snake[1], snake[2] = py, px, tables.first.phi[which]
  snake[3], snake[4], snake[5], snake[6] = y, x, 0, which


@_compiled
def _pair(rng, image, m, tables, plan, tips, snakes, found, weights):
  """Paints two target snakes; returns whether they found room."""
  distance, phis, side = plan.distance, tables.first.phi, len(m)
  ok, which, y, x, py, px = _first(rng, m, tables, 2 * distance, found)
  if not ok:
    return False
  tips[0, 0], tips[0, 1] = y, x
  _begin(image, tables, snakes[0], which, y, x, py, px, plan.bright)
  for attempt in range(_TRIES):
    turn = math.radians(int(rng.random() * 360))
    y = round(tips[0, 0] + distance * math.sin(turn))
    x = round(tips[0, 1] + distance * math.cos(turn))
    which = int(rng.random() * len(phis))
    ok, py, px = _pivot(tables, y, x, phis[which], side)
    if ok and _inside(y, x, side):
      break
    if attempt == _TRIES - 1:
      return False
  tips[1, 0], tips[1, 1] = y, x
  _begin(image, tables, snakes[1], which, y, x, py, px, plan.bright)
  for _ in range(plan.contour - 1):
    for s in range(2):
      if not _grow(rng, image, m, tables, plan, snakes[s], plan.bright,
                   weights):
        return False
  _keep_off(m, tables, snakes[1])
  return True


@_compiled
def _distractor(rng, image, m, tables, plan, snake, found, weights):
  """Paints a distractor; False, with a part painted, if it found no room."""
  ok, which, y, x, py, px = _first(rng, m, tables, 1, found)
  if not ok:
    return False
  _begin(image, tables, snake, which, y, x, py, px, plan.contrast)
  for _ in range(plan.short - 1):
    if not _grow(rng, image, m, tables, plan, snake, plan.contrast, weights):
      return False
  _keep_off(m, tables, snake)
  return True


@_compiled
def _scene(rng, tables, plan):
  """Paints all snakes of an image, without markers.

  Returns:
    The image, float32 [side, side]; the first and the last points of the target
    snakes, int64 [2, 2] each; the number of attempts; the number of distractors
    that found room.
  """
  side, padding = plan.side, plan.padding
  image = np.zeros((side, side), np.float32)
  empty = np.ones((side, side), np.float32)
  empty[padding:side - padding, padding:side - padding] = 0
  m = empty.copy()
  tips, ends = np.zeros((2, 2), np.int64), np.zeros((2, 2), np.int64)
  snakes = np.zeros((2, 7))
  found = np.zeros((side * side, 2), np.int64)
  weights = np.zeros(len(tables.points))
  attempts = 1
  while not _pair(rng, image, m, tables, plan, tips, snakes, found, weights):
    image[:], m[:] = 0, empty
    attempts += 1
  for s in range(2):
    ends[s, 0], ends[s, 1] = int(snakes[s, 3]), int(snakes[s, 4])
  placed = 0
  for _ in range(plan.distractors):
    for _ in range(plan.attempts):
      if np.sum(m <= _FREE) < _ROOM * m.size:
        break
      image_try, m_try = image.copy(), m.copy()
      if _distractor(rng, image_try, m_try, tables, plan, snakes[0], found,
                     weights):
        image, m = image_try, m_try
        placed += 1
        break
  return image, tips, ends, attempts, placed
