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
from matplotlib import figure, ticker

from lra.board import front
from lra.board.catalogue import FAMILIES, REFERENCE
from lra.core.formats import plain
from lra.core.style import (
  BASELINE,
  COLOURS,
  WIDTH,
  draw_baselines,
  legend,
  saved,
)

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
# Most letters in one line of a title, and of the label of an axis.
_LETTERS = 54
# Speeds so many times faster or slower than the middle half of the models are
# outside of the axis if they also are beyond Tukey's fences.
_FENCE = 3


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


def overview(lines: Sequence[Line], without: Sequence[str] = ()) -> bytes:
  """Draws a line per task and protocol: marks for rows, a bar for the baseline.

  The best row of a line is shown with its name and its interval. The bar is on
  top of the marks, which often have the same accuracy.

  Args:
    lines: the lines.
    without: the tasks without a run, which have no line.
  """
  fig = figure.Figure(figsize=(WIDTH, 1.8 + 0.5 * len(lines)),
                      layout='constrained')
  ax = fig.subplots()
  for y, line in enumerate(lines):
    if line.baseline is not None:
      ax.plot([100 * line.baseline] * 2, [y - 0.42, y + 0.42], color=BASELINE,
              linewidth=2, solid_capstyle='butt', zorder=3)
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
                  va='center', ha='right' if below else 'left', fontsize=9)
  ax.set_yticks(range(len(lines)), [
      plain(line.name, 60).replace(', ', '\n') for line in lines])
  ax.set_ylim(len(lines) - 0.4, -0.7)
  ax.set_xlim(0, 100)
  none = without and '\n' + textwrap.fill(
      f'no run yet: {", ".join(without)}', _LETTERS)
  ax.set_xlabel('test accuracy, %\n(each line names its best row within 110% '
                f'of the\nTransformer\'s parameters){none or ""}')
  ax.plot([], [], color=BASELINE, linewidth=2, label='baseline')
  name_families(ax, [mark for line in lines for mark in line.marks], _ALPHA)
  legend(fig, 4)
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
  fig = figure.Figure(figsize=(WIDTH, 2 + 0.2 * lines), layout='constrained')
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
  name_families(ax, shown)
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
  fig = figure.Figure(figsize=(WIDTH, 5.6), layout='constrained')
  ax = fig.subplots()
  low, high = _fences(faster)
  inside = [low <= speed <= high for speed in faster]
  shown = [(speed, 100 * mark.mean, area, colour(mark.family))
           for speed, mark, area, is_in in zip(
               faster, marks, areas, inside, strict=True) if is_in]
  ax.scatter(*zip(*shown, strict=True), alpha=_ALPHA, edgecolors='white',
             linewidths=0.5)
  ax.set_xscale('log')
  ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
  ax.xaxis.set_major_formatter(lambda value, _: f'{value:g}')
  ax.xaxis.set_minor_formatter(ticker.NullFormatter())
  ax.margins(0.1)
  # In the corner, the slow and less accurate one, names hide the fewest marks.
  ax.text(0.01, 0.01, '\n'.join(
      f'{"←" if speed < low else "→"} {plain(mark.model, 48)}: {speed:.2g} '
      f'steps, {100 * mark.mean:.1f}%' for speed, mark, is_in in zip(
          faster, marks, inside, strict=True) if not is_in),
          transform=ax.transAxes, fontsize=9, va='bottom')
  name_families(ax, marks, _ALPHA)
  ax.scatter([], [], _LARGEST, 'white', edgecolors='black', linewidths=0.5,
             label=f'{most / 2**30:.3g} GiB')
  ax.scatter([], [], _LARGEST / 4, 'white', edgecolors='black', linewidths=0.5,
             label=f'{most / 2**32:.3g} GiB')
  ax.set_xlabel('training steps in the time of one Transformer step,\n'
                f'timed on {plain(what, 60)}')
  ax.set_ylabel('test accuracy, %')
  _title(fig, title)
  legend(fig, 5)
  for speed, mark in zip(faster, marks, strict=True):
    if mark.model == REFERENCE:
      front.cross(ax, speed, 100 * mark.mean, plain(mark.model, 48))
  named = [i for i, is_in in enumerate(inside) if is_in]
  front.name(ax, [(faster[i], 100 * marks[i].mean) for i in named],
             [plain(marks[i].model, 48) * (marks[i].model != REFERENCE)
              for i in named],
             [math.sqrt(areas[i] / math.pi) for i in named])
  return saved(fig, 'svg')


def _fences(speeds):
  """Returns the lowest and the highest speed that the axis shows."""
  first, third = np.quantile(np.log(speeds), [0.25, 0.75])
  beyond = max(1.5 * (third - first), math.log(_FENCE))
  return math.exp(first - beyond), math.exp(third + beyond)


def colour(family: str) -> str:
  """Returns the colour of a family of mechanisms."""
  return _FAMILY.get(family, _OTHER)


def _bar(ax, mark, y):
  """Draws the interval of a row."""
  ax.plot([100 * mark.low, 100 * mark.high], [y, y],
          color=colour(mark.family), linewidth=1.5, alpha=0.5)


def name_families(ax, rows, alpha=1):
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
