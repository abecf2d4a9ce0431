"""Names beside the points of a figure, moved apart where they would collide."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib import axes
from matplotlib.backends import backend_agg

_GAPS = (2, 8, 16, 26, 38, 52, 70, 90, 115)
_DIRECTIONS = 16
_ROUNDS = 10
# In printer's points: a name that is so far from its mark has a line to it, and
# one that another mark is as near to, give or take so much.
_FAR, _CLEAR = 6, 2
# What a line across a name or a mark costs, in pixels of names on each other.
_CROSSED = 40


def place(ax: axes.Axes, points: Sequence[tuple[float, float]],
          names: Sequence[str], radii: Sequence[float]) -> list:
  """Writes a name beside each point, with a line to it where it is far.

  Names keep clear of each other, of the points, and of the edges, as far as
  there is room. The same points give the same places.

  Args:
    ax: where; its limits must not change any more.
    points: of each name, in the units of the axes.
    names: a text each.
    radii: of the mark of each point, in printer's points.

  Returns:
    The texts.
  """
  renderer = backend_agg.FigureCanvasAgg(ax.figure).get_renderer()
  ax.figure.draw_without_rendering()
  scale = ax.figure.dpi / 72
  texts = [ax.annotate(
      name, point, (0, 0), textcoords='offset points', fontsize=7,
      color='#333333', va='bottom')
           for name, point in zip(names, points, strict=True)]
  sizes = []
  for text in texts:
    box = text.get_window_extent(renderer)
    sizes.append((box.width, box.height))
  centres = [tuple(ax.transData.transform(point)) for point in points]
  marks = [(x - r * scale, y - r * scale, x + r * scale, y + r * scale)
           for (x, y), r in zip(centres, radii, strict=True)]
  frame = ax.get_window_extent(renderer).extents
  boxes = _apart(centres, marks, sizes, tuple(frame))
  gaps = np.array([_distance(boxes, x, y) - radius * scale
                   for (x, y), radius in zip(centres, radii, strict=True)])
  for i, (text, point, box, (x, y)) in enumerate(
      zip(texts, points, boxes, centres, strict=True)):
    text.set_position(((box[0] - x) / scale, (box[1] - y) / scale))
    others = np.delete(gaps[:, i], i)
    alike = (others < gaps[i, i] + _CLEAR * scale).any()
    if gaps[i, i] > _FAR * scale or alike:
      near = _nearest(box, x, y)
      ax.annotate(
          '', point, ((near[0] - x) / scale, (near[1] - y) / scale),
          textcoords='offset points', arrowprops={
              'arrowstyle': '-', 'lw': 0.5, 'color': '#555555', 'shrinkA': 0,
              'shrinkB': 0})
  return texts


def _apart(centres, marks, sizes, frame):
  """A box of each name: each in turn takes the best place beside the others.

  Until no name moves.
  """
  places = [np.array(list(_places(*centre, mark, size)))
            for centre, mark, size in zip(centres, marks, sizes, strict=True)]
  boxes = np.array([options[0] for options in places])
  alone = [10 * _outside(options, frame) + 0.2 * _distance(options, *centre)
           for options, centre in zip(places, centres, strict=True)]
  for _ in range(_ROUNDS):
    before = boxes.copy()
    for i, options in enumerate(places):
      others = np.concatenate([marks, boxes[:i], boxes[i + 1:]])
      # One after another: another order of the sum is another sum.
      shared = np.cumsum(_overlap(options[:, None], others), axis=1)[:, -1]
      lines = _crosses(*_line(options, *centres[i]), np.concatenate(
          [np.delete(x, i, axis=0) for x in (marks, boxes)])).sum(1)
      lines += _crosses(*(np.delete(ends, i, axis=0) for ends in _line(
          boxes, *np.transpose(centres))), options).sum(0)
      boxes[i] = options[np.argmin(shared + alone[i] + _CROSSED * lines)]
    if np.array_equal(boxes, before):
      break
  return boxes


def _places(x, y, mark, size):
  """Boxes around a point, the nearest first."""
  width, height = size
  radius = (mark[2] - mark[0]) / 2
  for gap in _GAPS:
    for k in range(_DIRECTIONS):
      angle = 2 * math.pi * k / _DIRECTIONS
      along, up = math.cos(angle), math.sin(angle)
      left = x + along * (radius + gap) + (along - 1) / 2 * width
      low = y + up * (radius + gap) + (up - 1) / 2 * height
      yield left, low, left + width, low + height


def _overlap(a, b):
  """The area that boxes [..., 4] have in common."""
  low = np.maximum(a[..., :2], b[..., :2])
  high = np.minimum(a[..., 2:], b[..., 2:])
  return np.maximum(high - low, 0).prod(-1)


def _nearest(boxes, x, y):
  """The points of boxes [..., 4] that are nearest to a point."""
  return np.stack([np.clip(x, boxes[..., 0], boxes[..., 2]),
                   np.clip(y, boxes[..., 1], boxes[..., 3])], -1)


def _line(boxes, x, y):
  """Both ends of the lines from boxes [..., 4] to points, [..., 2] each."""
  near = _nearest(boxes, x, y)
  x, y, _ = np.broadcast_arrays(x, y, near[..., 0])
  return near, np.stack([x, y], -1)


def _crosses(start, end, boxes):
  """Whether each line [N, 2] to [N, 2] crosses each box [M, 4]: [N, M]."""
  # Where along a line it is between the sides of a box, in x and in y.
  step = (end - start)[:, None]
  step = np.where(step == 0, 1e-9, step)
  one = (boxes[None, :, :2] - start[:, None]) / step
  other = (boxes[None, :, 2:] - start[:, None]) / step
  first = np.minimum(one, other).max(-1)
  last = np.maximum(one, other).min(-1)
  return (first < last) & (last > 0) & (first < 1)


def _outside(boxes, frame):
  """The area of boxes that is not in a frame."""
  return (boxes[..., 2:] - boxes[..., :2]).prod(-1) - _overlap(
      boxes, np.array(frame))


def _distance(boxes, x, y):
  """How far boxes are from a point."""
  along = np.maximum(np.maximum(boxes[..., 0] - x, x - boxes[..., 2]), 0)
  up = np.maximum(np.maximum(boxes[..., 1] - y, y - boxes[..., 3]), 0)
  return np.sqrt(along**2 + up**2)
