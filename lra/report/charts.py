"""Draws the figures of the leaderboard as SVG, from plain data.

There are no dates and no random ids: the same data give the same bytes with
one version of matplotlib. Nothing but the arguments decides what is drawn, so
that `figures` can tell when a figure has to be drawn again.
"""

import dataclasses
import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import axes, figure, ticker
from matplotlib.backends import backend_agg

from lra.formats import plain
from lra.records.style import (
  BASELINE,
  COLOURS,
  draw_baselines,
  legend,
  saved,
)
from lra.report.catalogue import FAMILIES

# Colour of each family; any other family has _OTHER.
_FAMILY = dict(zip(FAMILIES, COLOURS, strict=False))
_OTHER = '#8c8c8c'
# Area of the largest mark, in square points.
_LARGEST = 400
# In the overview, marks whose accuracies differ by no more than _APART would
# hide each other. So marks may be moved up by _LEVELS, in heights of a line.
_APART = 0.012
_LEVELS = (0.0, 0.18, -0.18, 0.36, -0.36)
# Opacity of marks that may overlap. The marks of the legend have it too, since
# a translucent colour looks different.
_ALPHA = 0.8
# Marks for a mean of several seeds, for each of these seeds, for a single seed.
_MEAN = dict(marker='o', linestyle='none', markersize=6)
_SEED = dict(marker='o', linestyle='none', markersize=4,
             markerfacecolor='none', alpha=0.7)
_SINGLE = dict(marker='o', linestyle='none', markersize=6.5,
               markerfacecolor='white', markeredgewidth=1.5)
# Most letters in one line of a title.
_LETTERS = 88
# Places to try for a name beside a point: gaps in pixels, and directions. Names
# are placed again in at most _ROUNDS rounds.
_GAPS = (2, 8, 16, 26, 38, 52, 70, 90, 115)
_DIRECTIONS = 16
_ROUNDS = 10
# In printer's points. A name further than _FAR from its mark has a line to it,
# and so has a name to which another mark is as near, within _CLEAR.
_FAR, _CLEAR = 6, 2
# Cost of a line across a name or a mark, as an area of overlap in pixels.
_CROSSED = 40


@dataclasses.dataclass(frozen=True)
class Mark:
  """The numbers of a row that figures show.

  Attributes:
    name, model, family: those of the row.
    mean: its accuracy, a fraction.
    low, high: the ends of its 95% interval.
    accuracies: those of its seeds.
  """
  name: str
  model: str
  family: str
  mean: float
  low: float
  high: float
  accuracies: Sequence[float]


@dataclasses.dataclass(frozen=True)
class Line:
  """The numbers of a task under a protocol that the overview shows.

  Attributes:
    name: task and protocol.
    baseline: the highest baseline, a fraction; None if there is none.
    marks: one for each row.
    best: the index in `marks` of the row that is named; None for none.
    note: the text beside its name.
  """
  name: str
  baseline: float | None
  marks: Sequence[Mark]
  best: int | None
  note: str


def overview(lines: Sequence[Line]) -> bytes:
  """Draws a line per task and protocol: marks for rows, a bar for the baseline.

  The best row of a line is shown with its name and its interval.
  """
  # As wide as GitHub's page, 1,012 pixels.
  fig = figure.Figure(figsize=(10.5, 1.4 + 0.5 * len(lines)),
                      layout='constrained')
  ax = fig.subplots()
  for y, line in enumerate(lines):
    if line.baseline is not None:
      ax.plot([100 * line.baseline] * 2, [y - 0.42, y + 0.42], color=BASELINE,
              linewidth=3, solid_capstyle='butt')
    first = None if line.best is None else line.marks[line.best]
    # The best row comes first, so it keeps its place.
    marks = sorted(line.marks, key=lambda mark: mark is not first)
    for mark, up in zip(marks, _beside([m.mean for m in marks]), strict=True):
      ax.plot(100 * mark.mean, y - up, 'o', markersize=6, alpha=_ALPHA,
              color=colour(mark.family), markeredgecolor='white',
              markeredgewidth=0.5)
    if first:
      _bar(ax, first, y)
      # The name is at that end of the interval which is away from the baseline.
      below = line.baseline is not None and first.mean < line.baseline
      end = first.low if below else first.high
      ax.annotate(_label(first) + line.note, (100 * end, y),
                  (-5 if below else 5, 0), textcoords='offset points',
                  va='center', ha='right' if below else 'left')
  ax.set_yticks(range(len(lines)), [plain(line.name, 60) for line in lines])
  ax.set_ylim(len(lines) - 0.4, -0.7)
  ax.set_xlim(0, 100)
  ax.set_xlabel('test accuracy, % (each line names its best row within 110% of '
                'the Transformer\'s parameters)')
  ax.plot([], [], color=BASELINE, linewidth=3, label='baseline')
  _name_families(ax, [mark for line in lines for mark in line.marks], _ALPHA)
  legend(fig, 7)
  return saved(fig, 'svg')


def _beside(means):
  """Returns how far above its line each mark is drawn, so that none is hidden.

  Each mark in turn takes the nearest free level; 0 if none is free.
  """
  taken, ups = set(), []
  for mean in means:
    up = next((up for up in _LEVELS if all(
        abs(mean - other) > _APART for other, there in taken if there == up)),
              0.0)
    taken.add((mean, up))
    ups.append(up)
  return ups


def accuracy(title: str, tables: Sequence[tuple[str, Sequence[Mark]]],
             baselines: Sequence[tuple[str, float]]) -> bytes:
  """Draws one line per row, with its accuracy and interval.

  A filled mark is the mean of several seeds, and small open marks are these
  seeds. A large open mark is a row of one seed.

  Args:
    title: title of the figure.
    tables: the title of each table, and its rows.
    baselines: (name, accuracy).
  """
  lines = sum(len(marks) for _, marks in tables) + len(tables)
  fig = figure.Figure(figsize=(8, 1.6 + 0.2 * lines), layout='constrained')
  ax = fig.subplots()
  ticks = []
  for name, marks in tables:
    ticks.append((len(ticks), f'{plain(name, 48)}:'))
    for mark in marks:
      y = len(ticks)
      ticks.append((y, _label(mark)))
      _bar(ax, mark, y)
      several = len(mark.accuracies) > 1
      if several:
        ax.plot([100 * a for a in mark.accuracies], [y] * len(mark.accuracies),
                color=colour(mark.family), **_SEED)
      ax.plot(100 * mark.mean, y, color=colour(mark.family),
              **(_MEAN if several else _SINGLE))
  shown = [mark for _, marks in tables for mark in marks]
  _name_families(ax, shown)
  _name_marks(ax, shown)
  draw_baselines(baselines, ax.axvline)
  ax.set_yticks(*zip(*ticks, strict=True))
  for tick, (_, text) in zip(ax.get_yticklabels(), ticks, strict=True):
    if text.endswith(':'):
      tick.set_fontweight('bold')
  ax.grid(axis='y', visible=False)
  ax.set_ylim(lines - 0.4, -0.6)
  ax.xaxis.set_major_locator(ticker.MaxNLocator(steps=[1, 2, 5, 10]))
  ax.set_xlabel('test accuracy, %')
  _title(fig, title)
  legend(fig, 2)
  return saved(fig, 'svg')


def speed(title: str, marks: Sequence[Mark], faster: Mapping[str, float],
          memory: Mapping[str, int], what: str) -> bytes:
  """Draws one mark per model: accuracy against speed; its area is the memory.

  Args:
    title: title of the figure.
    marks: one row of each model.
    faster, memory: by model, see `inputs.Speeds`.
    what: the step that was timed.
  """
  faster, memory = ([of[mark.model] for mark in marks]
                    for of in (faster, memory))
  most = max(memory)
  areas = [max(_LARGEST * size / most, 4) for size in memory]
  fig = figure.Figure(figsize=(8, 4 + 0.06 * len(marks)), layout='constrained')
  ax = fig.subplots()
  ax.scatter(faster, [100 * mark.mean for mark in marks], areas,
             [colour(mark.family) for mark in marks], alpha=_ALPHA,
             edgecolors='white', linewidths=0.5)
  ax.set_xscale('log')
  ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
  ax.xaxis.set_major_formatter(lambda value, _: f'{value:g}')
  ax.xaxis.set_minor_formatter(ticker.NullFormatter())
  ax.margins(0.12)
  _name_families(ax, marks, _ALPHA)
  ax.scatter([], [], _LARGEST, 'white', edgecolors='black', linewidths=0.5,
             label=f'{most / 2**30:.3g} GiB')
  ax.scatter([], [], _LARGEST / 4, 'white', edgecolors='black', linewidths=0.5,
             label=f'{most / 2**32:.3g} GiB')
  ax.set_xlabel('training steps in the time of one Transformer step '
                f'({plain(what, 60)})')
  ax.set_ylabel('test accuracy, %')
  _title(fig, title)
  legend(fig, 5)
  place_names(
      ax, [(x, 100 * mark.mean) for x, mark in zip(faster, marks, strict=True)],
      [plain(mark.model, 48) for mark in marks],
      [math.sqrt(area / math.pi) for area in areas])
  return saved(fig, 'svg')


def colour(family: str) -> str:
  """Returns the colour of a family of mechanisms."""
  return _FAMILY.get(family, _OTHER)


def _bar(ax, mark, y):
  """Draws the interval of a row."""
  ax.plot([100 * mark.low, 100 * mark.high], [y, y],
          color=colour(mark.family), linewidth=1.5, alpha=0.5)


def _name_families(ax, rows, alpha=1):
  """Adds the colours of families to the legend."""
  shown = {row.family for row in rows}
  for family in sorted(shown, key=lambda name: (
      [*FAMILIES, name].index(name), name)):
    ax.plot([], [], 'o', color=colour(family), label=_legend(family),
            alpha=alpha, markeredgecolor='white' if alpha < 1 else None)


def _name_marks(ax, rows):
  """Adds the shapes of marks to the legend."""
  several = [len(row.accuracies) > 1 for row in rows]
  marks = [('mean of several seeds', _MEAN), ('its seeds', _SEED)]
  for name, mark in (marks * any(several)
                     + [('one seed', _SINGLE)] * (not all(several))):
    ax.plot([], [], color='black', label=name, **mark)


def _title(fig, text):
  """Writes the title in the middle of the figure, on as many lines as needed.
  """
  fig.suptitle('\n'.join(textwrap.wrap(text, _LETTERS)), fontsize='large')


def _label(mark):
  return plain(mark.name, 48)


def _legend(text):
  """Returns a name for the legend, which hides names that begin with '_'."""
  return plain(text, 48).lstrip('_') or 'unnamed'


def place_names(ax: axes.Axes, points: Sequence[tuple[float, float]],
          names: Sequence[str], radii: Sequence[float]) -> list:
  """Writes a name beside each point, with a line to the point if it is far.

  Names keep clear of each other, of the points, and of the edges, as far as
  there is room. The same points give the same places.

  Args:
    ax: the axes, whose limits must not change any more.
    points: the point of each name, in the units of the axes.
    names: the texts.
    radii: the radius of each point's mark, in printer's points.

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
  """Returns a box for each name.

  Each name in turn takes the best place beside the others, until none moves.
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
      # Sums in a fixed order, since rounding depends on the order.
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
  """Yields boxes around a point, the nearest first."""
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
  """Returns the area that boxes [..., 4] have in common."""
  low = np.maximum(a[..., :2], b[..., :2])
  high = np.minimum(a[..., 2:], b[..., 2:])
  return np.maximum(high - low, 0).prod(-1)


def _nearest(boxes, x, y):
  """Returns the points of boxes [..., 4] that are nearest to a point."""
  return np.stack([np.clip(x, boxes[..., 0], boxes[..., 2]),
                   np.clip(y, boxes[..., 1], boxes[..., 3])], -1)


def _line(boxes, x, y):
  """Returns both ends of lines from boxes [..., 4] to points, [..., 2] each."""
  near = _nearest(boxes, x, y)
  x, y, _ = np.broadcast_arrays(x, y, near[..., 0])
  return near, np.stack([x, y], -1)


def _crosses(start, end, boxes):
  """Returns which lines, `start` to `end` [N, 2], cross which boxes [M, 4].

  The result is bool [N, M].
  """
  # The part of a line, 0 to 1, between the sides of a box, in x and in y.
  step = (end - start)[:, None]
  step = np.where(step == 0, 1e-9, step)
  one = (boxes[None, :, :2] - start[:, None]) / step
  other = (boxes[None, :, 2:] - start[:, None]) / step
  first = np.minimum(one, other).max(-1)
  last = np.maximum(one, other).min(-1)
  return (first < last) & (last > 0) & (first < 1)


def _outside(boxes, frame):
  """Returns the area of boxes that is outside a frame."""
  return (boxes[..., 2:] - boxes[..., :2]).prod(-1) - _overlap(
      boxes, np.array(frame))


def _distance(boxes, x, y):
  """Returns how far boxes are from a point."""
  along = np.maximum(np.maximum(boxes[..., 0] - x, x - boxes[..., 2]), 0)
  up = np.maximum(np.maximum(boxes[..., 1] - y, y - boxes[..., 3]), 0)
  return np.sqrt(along**2 + up**2)
