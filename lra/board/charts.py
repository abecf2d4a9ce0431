"""Draws the figures of the leaderboard as SVG: dots, clouds and panels.

There are no dates and no random ids: the same rows give the same bytes with one
version of matplotlib.
"""

import functools
import itertools
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib import figure, ticker

from lra.board import kinds
from lra.board.catalogue import FAMILIES, REFERENCE
from lra.board.frame import Board
from lra.board.tables import lines
from lra.core import style
from lra.core.formats import plain

# Most rows in a figure: there is no room for more names.
MOST = 80
_COLOURS = dict(zip(FAMILIES, style.COLOURS, strict=False))
_MARK = dict(marker='o', linestyle='none', alpha=0.8, markeredgecolor='white',
             markeredgewidth=0.5)


class Figure(NamedTuple):
  """A figure of the page; `shows` is for readers who cannot see it."""
  name: str
  shows: str
  tasks: Sequence[str]
  draw: Callable[[], bytes]


def of_task(board: Board) -> list[Figure]:
  """Returns the figures of a task."""
  title, found = board.task.title, []

  def add(name, shows, draw, what, *arguments, **options):
    found.append(Figure(
        f'{board.task.name}_{name}.svg', f'{title}: {shows}', [board.task.name],
        functools.partial(draw, f'{title}: {what}', *arguments, **options)))

  rows = [(key.title, row) for key, rows in board.tables().items()
          for row in lines(rows[rows.accuracy.notna()])]
  if rows:
    entries = [entry for table, members in itertools.groupby(
        rows[:MOST], key=lambda pair: pair[0]) for entry in (
            (f'{table}:', None), *((row.name, row) for _, row in members))]
    add('accuracy', 'test accuracy of each row with its interval, and '
        'baselines', dots, 'accuracy with its 95% interval' + (
            f'; {MOST} of {len(rows)} rows' * (len(rows) > MOST)),
        entries, board.baselines)
  longer, trained = kinds.longer(board), board.task.seq_len
  if longer:
    names = ['', *(name for name in kinds.lengths(board) if name.isdigit())]
    add('lengths', 'scaled accuracy against the length of the sequences, one '
        'panel for each row', curves, 'sequences longer than in training',
        trained, [(item.name, item.family, [
            (int(name or trained), *score) for name in names
            if (score := kinds.score(item.row, board.task, name))])
                  for item in longer.items[:MOST]])
  return found


def drawing(draw):
  """Lets a function that makes a figure return it as an SVG in our style."""
  @functools.wraps(draw)
  def drawn(*arguments, **options) -> bytes:
    with style.style():
      return style.saved(draw(*arguments, **options), 'svg')
  return drawn


@drawing
def dots(title: str, entries: Sequence[tuple[str, Any]],
         baselines: Sequence = ()):
  """Draws a line for each (text, row), with the 95% interval and the seeds.

  A text without a row is a heading. `baselines` are lines through the whole
  figure.
  """
  fig, ax = _axes(title, 2 + 0.2 * len(entries))
  for y, (_, row) in enumerate(entries):
    if row is None:
      continue
    colour = _colour(row.family)
    ax.plot(100 * row.accuracy, y, color=colour, **_MARK)
    ax.plot([100 * row.low, 100 * row.high], [y, y], alpha=0.5, color=colour)
    if row.seeds > 1:
      ax.plot([100 * x for x in row.row.accuracies], [y] * row.seeds, '|',
              color=colour)
  ax.set_yticks(range(len(entries)), [plain(text, 48) for text, _ in entries])
  for tick, (_, row) in zip(ax.get_yticklabels(), entries, strict=True):
    tick.set_fontweight('normal' if row else 'bold')
  ax.grid(axis='y', visible=False)
  ax.set_ylim(len(entries) - 0.4, -0.6)
  ax.set_xlabel('test accuracy, %')
  style.draw_baselines([(b.name, b.accuracy) for b in baselines], ax.axvline)
  return _with_legend(fig, ax, [row for _, row in entries if row])


@drawing
def cloud(title: str, points: Sequence[tuple[float, Any]], label: str):
  """Draws a mark for each (cost, row), and names those that no cheaper one
  beats.
  """
  fig, ax = _axes(title, 4.6)
  ax.scatter([x for x, _ in points], [100 * row.accuracy for _, row in points],
             40, [_colour(row.family) for _, row in points], alpha=0.8,
             edgecolors='white', linewidths=0.5)
  ax.set_xscale('log', base=2)
  ax.xaxis.set_major_formatter(lambda value, _: (
      f'{value:,.0f}' if value >= 1 else f'{value:g}'))
  ax.margins(0.1, 0.1)
  left, right = ax.get_xlim()  # names are on the left of their marks
  ax.set(xlabel=label, ylabel='test accuracy, %',
         xlim=(left * (left / right)**0.15, right))
  low, high = ax.get_ylim()
  best = above = -high
  for x, row in sorted(points, key=lambda point: (
      point[0], -point[1].accuracy)):
    y = 100 * row.accuracy
    if y > best or row.model == REFERENCE:
      # Names of the front rise, and each keeps clear of the last one.
      at = above = max(y, above + (high - low) / 20) if y > best else y
      best = max(y, best)
      ax.annotate(plain(row.name, 48), (x, y), (x, at), fontsize=9,
                  ha='right', va='bottom', arrowprops={
                      'arrowstyle': '-', 'color': style.BASELINE, 'shrinkA': 0,
                      'linewidth': 0.5, 'relpos': (1, 0)})
  return _with_legend(fig, ax, [row for _, row in points])


@drawing
def curves(title: str, trained: int, panels: Sequence[tuple]):
  """Draws a panel for each row, with the other rows in grey.

  The longest sequence of training had `trained` tokens. A panel is (name,
  family, (tokens, scaled accuracy, low, high) of each point).
  """
  columns = min(len(panels), 3)
  height = -(-len(panels) // columns)
  fig, axes = _axes(title, 0.9 + 1.6 * height, height, columns)
  for ax, (name, family, points) in zip(axes.flat, panels, strict=False):
    for *_, others in panels:
      ax.plot(*list(zip(*others, strict=True))[:2], color='#d5d5d5')
    tokens, middle, low, high = zip(*points, strict=True)
    ax.fill_between(tokens, low, high, color=_colour(family), alpha=0.2)
    ax.plot(tokens, middle, color=_colour(family), marker='.')
    ax.axvline(trained, color=style.BASELINE, linestyle=':')
    ax.set_title('\n'.join(textwrap.wrap(plain(name, 66), 22)), fontsize=9)
    ax.set_xscale('log', base=2)
    ax.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:.0f}'))
    ax.set_ylim(-0.12, 1.05)
  for ax in axes.flat[len(panels):]:
    ax.set_axis_off()
  fig.supxlabel('tokens of a sequence (dotted: the longest in training)')
  fig.supylabel('scaled accuracy')
  return fig


def _axes(title, height, *shape):
  """Returns a figure with a title, and its axes: an array if it has a shape."""
  fig = figure.Figure(figsize=(style.WIDTH, height), layout='constrained')
  fig.suptitle('\n'.join(textwrap.wrap(title, 54)))
  return fig, fig.subplots(*shape, sharex=bool(shape), sharey=bool(shape),
                           squeeze=not shape)


def _colour(family):
  return _COLOURS.get(family, '#8c8c8c')


def _with_legend(fig, ax, rows):
  """Returns the figure with a legend, also of the families of rows."""
  for family in sorted({row.family for row in rows}, key=lambda name: (
      [*FAMILIES, name].index(name), name)):
    # A legend hides names that begin with '_'.
    ax.plot([], [], color=_colour(family), label=(
        plain(family, 48).lstrip('_') or 'unnamed'), **_MARK)
  style.legend(fig, 4)
  return fig
