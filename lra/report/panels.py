"""Draws small figures side by side: one panel for each mechanism."""

import dataclasses
import textwrap
from collections.abc import Sequence

from matplotlib import figure, ticker

from lra.formats import plain
from lra.records.style import BASELINE, saved
from lra.report.charts import colour

_COLUMNS = 4
_LETTERS, _LINE = 68, 34  # most letters of a name, and of each of its lines
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


def lengths(title: str, trained: int, panels: Sequence[Panel]) -> bytes:
  """Draws scaled accuracy against length: a panel for each mechanism.

  Args:
    title: title of the figure.
    trained: the longest sequence of training, in tokens.
    panels: the mechanisms, in order.
  """
  count = min(len(panels), _COLUMNS)
  rows = -(-len(panels) // count)
  fig = figure.Figure(figsize=(max(2.6 * count, 5.2), 0.9 + 1.75 * rows),
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
