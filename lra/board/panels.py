"""Draws small figures side by side: one panel for each mechanism."""

import dataclasses
import textwrap
from collections.abc import Sequence

from matplotlib import figure, ticker

from lra.board import front
from lra.board.catalogue import REFERENCE
from lra.board.charts import colour, name_families
from lra.core.formats import plain
from lra.core.style import BASELINE, WIDTH, legend, saved

_COLUMNS = 3
_LETTERS, _LINE = 66, 22  # most letters of a name, and of each of its lines
_BEHIND = '#d5d5d5'  # lines of the other mechanisms


@dataclasses.dataclass(frozen=True)
class Panel:
  """A curve of one mechanism.

  Attributes:
    name, family: of the mechanism.
    points: (tokens, scaled accuracy, low and high end of its interval).
  """
  name: str
  family: str
  points: Sequence[tuple[float, float, float, float]]


@dataclasses.dataclass(frozen=True)
class Profile:
  """The scores of one mechanism on several tasks.

  Attributes:
    name, family: of the mechanism.
    bars: one for each task: 0 for the best baseline, 1 for no error; None for
      a task without a row.
  """
  name: str
  family: str
  bars: Sequence[float | None]


@dataclasses.dataclass(frozen=True)
class Size:
  """The accuracy of a row and the size of its state.

  Attributes:
    name, family: of the mechanism.
    state: numbers that a layer keeps from token to token.
    mean, low, high: accuracy and its interval, fractions.
  """
  name: str
  family: str
  state: int
  mean: float
  low: float
  high: float


def profiles(tasks: Sequence[str], found: Sequence[Profile]) -> bytes:
  """Draws a line for each mechanism, with a bar for each task.

  Args:
    tasks: names of the tasks, in the order of the bars.
    found: the mechanisms, in order.
  """
  fig = figure.Figure(figsize=(WIDTH, 1.9 + 0.17 * len(found)),
                      layout='constrained')
  axes = fig.subplots(1, len(tasks), sharex=True, sharey=True, squeeze=False)
  for task, ax in enumerate(axes[0]):
    known = [(line, profile) for line, profile in enumerate(found)
             if profile.bars[task] is not None]
    ax.barh([line for line, _ in known],
            [max(min(profile.bars[task], 1), -0.25) for _, profile in known],
            color=[colour(profile.family) for _, profile in known],
            height=0.75)
    ax.axvline(0, color=BASELINE, linewidth=0.8)
    ax.set_title(plain(tasks[task], 24), fontsize=9, rotation=90)
    ax.spines['left'].set_visible(False)
    ax.set_xticks([0, 1])
    ax.tick_params(left=False)
    ax.grid(axis='y', visible=False)
  axes[0, 0].set_yticks(range(len(found)), [
      plain(profile.name, 32) for profile in found], fontsize=9)
  axes[0, 0].set_ylim(len(found) - 0.4, -0.6)
  axes[0, 0].set_xlim(-0.25, 1)
  fig.suptitle('0: the best baseline, 1: no error', fontsize=10)
  name_families(axes[0, 0], found)
  legend(fig, 4)
  return saved(fig, 'svg')


def states(title: str, found: Sequence[Size]) -> bytes:
  """Draws accuracy against the size of the state, one mark for each row.

  Rows have names if no other row is as accurate with a smaller state.
  """
  fig = figure.Figure(figsize=(WIDTH, 4.2), layout='constrained')
  ax = fig.subplots()
  for size in found:
    ax.plot([size.state] * 2, [100 * size.low, 100 * size.high],
            color=colour(size.family), linewidth=1.2, alpha=0.6)
    ax.plot(size.state, 100 * size.mean, 'o', color=colour(size.family),
            markeredgecolor='white', markeredgewidth=0.5, markersize=7)
  ax.set_xscale('log', base=2)
  ax.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:,.0f}'))
  ax.margins(x=0.2, y=0.12)
  ax.set_xlabel('state: numbers that a layer keeps from token to token')
  ax.set_ylabel('test accuracy, %')
  fig.suptitle(title, fontsize=10, x=0.01, ha='left')
  name_families(ax, found)
  legend(fig, 4)
  for size in found:
    if size.name == REFERENCE:
      front.cross(ax, size.state, 100 * size.mean, size.name)
  front.name(ax, [(size.state, 100 * size.mean) for size in found],
             [plain(size.name, 48) * (size.name != REFERENCE)
              for size in found], [3.5] * len(found),
             small=True)
  return saved(fig, 'svg')


def lengths(title: str, trained: int, panels: Sequence[Panel]) -> bytes:
  """Draws scaled accuracy against length: a panel for each mechanism.

  Args:
    title: title of the figure.
    trained: the longest sequence of training, in tokens.
    panels: the mechanisms, in order.
  """
  count = min(len(panels), _COLUMNS)
  rows = -(-len(panels) // count)
  fig = figure.Figure(figsize=(WIDTH, 0.9 + 1.6 * rows),
                      layout='constrained')
  axes = fig.subplots(rows, count, sharex=True, sharey=True, squeeze=False)
  for ax, panel in zip(axes.flat, panels, strict=False):
    for other in panels:
      ax.plot(*_curve(other), color=_BEHIND, linewidth=0.8)
    tokens, means = _curve(panel)
    own = colour(panel.family)
    ax.fill_between(tokens, [point[2] for point in panel.points],
                    [point[3] for point in panel.points], color=own, alpha=0.2,
                    linewidth=0)
    ax.plot(tokens, means, color=own, marker='o', markersize=3.5,
            linewidth=1.8)
    ax.axvline(trained, color=BASELINE, linestyle=':', linewidth=1)
    ax.axhline(0, color=BASELINE, linewidth=0.8)
    ax.set_title('\n'.join(textwrap.wrap(plain(panel.name, _LETTERS), _LINE)),
                 fontsize=9, loc='left')
    ax.set_xscale('log', base=2)
    ax.set_xticks(sorted({int(point[0]) for p in panels for point in p.points}))
    ax.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:.0f}'))
    ax.xaxis.set_minor_locator(ticker.NullLocator())
    ax.set_ylim(-0.12, 1.05)
    ax.set_yticks([0, 0.5, 1])
  for ax in axes.flat[len(panels):]:
    ax.set_axis_off()
  for ax in axes.flat[max(len(panels) - count, 0):len(panels)]:
    ax.tick_params(labelbottom=True)
  fig.suptitle(title, fontsize=10, x=0.01, ha='left')
  fig.supxlabel('tokens of a sequence (dotted: the longest in training)',
                fontsize=9)
  fig.supylabel('scaled accuracy', fontsize=9)
  return saved(fig, 'svg')


def _curve(panel):
  """Returns the lengths and the scaled accuracies of a panel."""
  return ([point[0] for point in panel.points],
          [point[1] for point in panel.points])
