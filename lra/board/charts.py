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
from lra.board.frame import Board, chosen
from lra.board.inputs import Speeds
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


def every(boards: Sequence[Board], speeds: Speeds | None) -> list[Figure]:
  """Returns the figures of all pages but those of the laptop arena."""
  return [*overview(boards), *(
      figure for board in boards for figure in of_task(board, speeds))]


def overview(boards: Sequence[Board]) -> list[Figure]:
  """Returns the figure of the full tasks, if one has a row."""
  full = [board for board in boards
          if board.task.group == 'full' and len(board.rows)]
  if not full:
    return []
  entries = [
      (f'{board.task.title}, {key.protocol}', sorted(
          lines(rows[rows.accuracy.notna()]), key=lambda row: (
              row.heavy, bool(row.foreign or row.apart))), board.highest)
      for board in full for key, rows in board.tables().items()
      if not key.departures]
  return [Figure(
      'full_tasks.svg', 'test accuracies and the baseline of each full task',
      [board.task.name for board in full], functools.partial(
          dots, 'The best rows within 110% of the Transformer\'s parameters '
          'have names', entries, name_first=True))]


def of_task(board: Board, speeds: Speeds | None) -> list[Figure]:
  """Returns the figures of a task; no figure of speed without `speeds`."""
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
            (f'{table}:', [], None),
            *((row.name, [row], None) for _, row in members))]
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
  rows = _most(board, lambda row: board.task.probe and row.state_size)
  if rows:
    add('states', 'test accuracy against the size of the state', cloud,
        'accuracy against state size',
        [(row.state_size, row) for row in rows], [],
        'state: numbers that a layer keeps from token to token', small=True)
  rows = _most(board, lambda row: speeds and row.model in speeds.faster, True)
  if rows:
    add('speed', 'test accuracy against speed; the area of a mark is the '
        'memory', cloud, 'accuracy against speed (area: memory of a step)',
        [(speeds.faster[row.model], row) for row in rows],
        [speeds.memory[row.model] for row in rows],
        'training steps in the time of one Transformer step,\n'
        f'timed on {plain(speeds.what, 60)}')
  return found


def _most(board, wanted, one_each=False):
  """Returns the rows for which `wanted` holds, of the protocol with most.

  Fewer than three rows are none. If `one_each`, a model has one row only: it
  was measured in one configuration.
  """
  found = []
  for key, table in board.tables().items():
    rows = [row for row in lines(table) if row.seeds and wanted(row)]
    if one_each:
      rows = [chosen(row for row in rows if row.model == model)
              for model in dict.fromkeys(row.model for row in rows)]
    found.append([] if key.departures else rows[:MOST])
  rows = max(found, key=len, default=[])
  return rows if len(rows) > 2 else []


def drawing(draw):
  """Lets a function that makes a figure return it as an SVG in our style."""
  @functools.wraps(draw)
  def drawn(*arguments, **options) -> bytes:
    with style.style():
      return style.saved(draw(*arguments, **options), 'svg')
  return drawn


@drawing
def dots(title: str, entries: Sequence[tuple[str, Sequence, float | None]],
         baselines: Sequence = (), name_first: bool = False):
  """Draws a line for each entry: (text, rows, accuracy of a baseline or None).

  The first row has its 95% interval, its seeds and, if it is within the budget
  of parameters and `name_first`, its name. `baselines` are lines through the
  whole figure.
  """
  fig, ax = _axes(title, 2 + (0.45 if name_first else 0.2) * len(entries))
  for y, (_, rows, baseline) in enumerate(entries):
    for row in rows[::-1]:
      ax.plot(100 * row.accuracy, y, color=_colour(row.family), **_MARK)
    for row in rows[:1]:
      ax.plot([100 * row.low, 100 * row.high], [y, y], alpha=0.5,
              color=_colour(row.family))
      if row.seeds > 1:
        ax.plot([100 * x for x in row.row.accuracies], [y] * row.seeds, '|',
                color=_colour(row.family))
      if name_first and not row.heavy:
        ax.annotate(plain(row.name, 48), (100 * row.accuracy, y), (0, 5),
                    ha='center', textcoords='offset points', fontsize=9)
    if baseline is not None:
      ax.vlines(100 * baseline, y - 0.4, y + 0.4, color=style.BASELINE,
                linewidth=2)
  ax.set_yticks(range(len(entries)), [plain(text, 48) for text, *_ in entries])
  for tick, (_, rows, _) in zip(ax.get_yticklabels(), entries, strict=True):
    tick.set_fontweight('normal' if rows else 'bold')
  ax.grid(axis='y', visible=name_first)
  ax.set_ylim(len(entries) - 0.4, -0.6)
  ax.set_xlabel('test accuracy, %' + ' (bar: the best baseline)' * name_first)
  style.draw_baselines([(b.name, b.accuracy) for b in baselines], ax.axvline)
  return _with_legend(fig, ax, [row for _, rows, _ in entries for row in rows])


@drawing
def cloud(title: str, points: Sequence[tuple[float, Any]],
          areas: Sequence[float], label: str, small: bool = False):
  """Draws a mark for each (x, row), and names those that no other row beats.

  `areas` are bytes that the areas of the marks show, [] for equal areas. With
  `small`, a smaller x is better.
  """
  fig, ax = _axes(title, 4.6)
  ax.scatter([x for x, _ in points], [100 * row.accuracy for _, row in points],
             [400 * area / max(areas) + 4 for area in areas] or 40,
             [_colour(row.family) for _, row in points], alpha=0.8,
             edgecolors='white', linewidths=0.5)
  ax.set_xscale('log', base=2)
  ax.xaxis.set_major_formatter(lambda value, _: f'{value:,.4g}')
  ax.margins(0.15, 0.1)
  ax.set(xlabel=label, ylabel='test accuracy, %')
  low, high = ax.get_ylim()
  best = above = -high
  for x, row in sorted(points, key=lambda point: (
      point[0] if small else -point[0], -point[1].accuracy)):
    y = 100 * row.accuracy
    if y > best or row.model == REFERENCE:
      # Names of the front rise, and each keeps clear of the last one.
      at = above = max(y, above + (high - low) / 20) if y > best else y
      best = max(y, best)
      ax.annotate(plain(row.name, 48), (x, y), (x, at), fontsize=9,
                  ha='right' if small else 'left', va='bottom')
  for part in (1, 4) if areas else ():
    ax.scatter([], [], 400 / part, 'white', edgecolors='black', linewidths=0.5,
               label=f'{max(areas) / 2**30 / part:.3g} GiB')
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
