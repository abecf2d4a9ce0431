"""Figures of the leaderboard: accuracies with intervals, floors and speed.

SVG without dates or random ids, so that the same records give the same bytes
with one version of matplotlib.
"""

import contextlib
import io
import math
import textwrap
import threading
import warnings
from collections.abc import Sequence

import matplotlib
import matplotlib.style
from matplotlib import figure, ticker

from lra.report import labels
from lra.report.catalogue import FAMILIES
from lra.report.formats import plain
from lra.report.rows import TaskBoard, best
from lra.report.speeds import Speeds

COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9',
           '#000000')
DASHES = ('--', ':', '-.', (0, (6, 2, 1, 2, 1, 2)), (0, (1, 4)))
FLOOR = '#666666'
OVERVIEW = 'full_tasks.svg'
# Colour of each family; one of none has the last.
_FAMILY = dict(zip(FAMILIES, COLOURS, strict=False))
_OTHER = '#8c8c8c'
# Rows in a figure; there is no room for the names of more.
MOST = 80
# Area of the largest mark, in square points.
_LARGEST = 400
# Of the overview: accuracies that are no further apart would hide each other,
# and how far above their line, in lines, marks may be drawn instead.
_APART = 0.012
_LEVELS = (0.0, 0.18, -0.18, 0.36, -0.36)
# Of marks that may lie on each other; the legend's are made alike, since a
# colour that shines through is another colour.
_ALPHA = 0.8
# Marks of accuracies: of a mean, of its seeds, of a row that has one seed.
_MEAN = dict(marker='o', linestyle='none', markersize=6)
_SEED = dict(marker='o', linestyle='none', markersize=4,
             markerfacecolor='none', alpha=0.7)
_SINGLE = dict(marker='o', linestyle='none', markersize=6.5,
               markerfacecolor='white', markeredgewidth=1.5)
# Of a title that one line of a figure holds.
_LETTERS = 88
_STYLE = {
    'font.size': 9, 'axes.grid': True, 'grid.color': '#e6e6e6',
    'axes.axisbelow': True, 'axes.spines.top': False,
    'axes.spines.right': False, 'legend.frameon': False,
    'text.parse_math': False,
}


_ALONE = threading.RLock()


@contextlib.contextmanager
def style():
  """Our looks, untouched by the user's own matplotlib settings.

  They are those of the process: one thread at a time has them.
  """
  with (_ALONE, warnings.catch_warnings(), matplotlib.rc_context(),
        matplotlib.style.context(['default', _STYLE])):
    # Letters that a font has not, points that all are one.
    warnings.simplefilter('ignore', UserWarning)
    matplotlib.rcParams['svg.hashsalt'] = 'lra'
    matplotlib.rcParams['svg.fonttype'] = 'none'
    yield


def overview(boards: Sequence[TaskBoard]) -> dict[str, str]:
  """File name -> what it shows, of the figure of all full tasks, if any."""
  shows = 'test accuracies and the highest floor of each full task'
  return {OVERVIEW: shows} if any(b.rows for b in _full(boards)) else {}


def names(board: TaskBoard, speeds: Speeds | None) -> dict[str, str]:
  """File name -> what it shows, of each figure of a task."""
  name, title = board.task.name, board.task.title
  found = {}
  if board.finished:
    found[f'{name}_accuracy.svg'] = (
        f'{title}: test accuracy of each row, with its interval, and floors')
  if _timed(board, speeds):
    found[f'{name}_speed.svg'] = (
        f'{title}: test accuracy against speed, areas are memory')
  return found


def draw(boards: Sequence[TaskBoard], speeds: Speeds | None
         ) -> dict[str, bytes]:
  """File name -> SVG of each figure of the page.

  Args:
    boards: the tasks.
    speeds: of the models; None draws no figure of speed.
  """
  with style():
    drawn = {name: _overview(boards) for name in overview(boards)}
    for board in boards:
      drawn |= dict(zip(names(board, speeds), (
          draw() for draw in (lambda b=board: _accuracy(b),
                              lambda b=board: _speed(b, speeds))),
                        strict=False))
  return drawn


def _full(boards):
  return [b for b in boards if b.task.group == 'full'
          and (b.floors or b.finished)]


def _overview(boards):
  """One line per task and protocol: a mark for each row, a bar for the floor.

  The best row within the budget has its name and its interval.
  """
  lines = [(board, *line) for board in _full(boards)
           for line in _comparable(board) or [
               (f'{board.task.title}, no run', [])]]
  fig = figure.Figure(figsize=(8, 1.4 + 0.5 * len(lines)),
                      layout='constrained')
  ax = fig.subplots()
  for y, (board, _, rows) in enumerate(lines):
    if board.floors:
      ax.plot([100 * board.highest] * 2, [y - 0.42, y + 0.42], color=FLOOR,
              linewidth=3, solid_capstyle='butt')
    first = best(rows)
    rows = sorted(rows, key=lambda row: row is not first)  # it keeps its place
    for row, up in zip(rows, _beside([row.mean for row in rows]), strict=True):
      ax.plot(100 * row.mean, y - up, 'o', markersize=6, alpha=_ALPHA,
              color=colour(row.family), markeredgecolor='white',
              markeredgewidth=0.5)
    if first:
      _bar(ax, first, y)
      # Where its interval ends, away from the floor.
      below = board.highest is not None and first.mean < board.highest
      end = first.interval.low if below else first.interval.high
      ax.annotate(_label(first), (100 * end, y), (-5 if below else 5, 0),
                  textcoords='offset points', fontsize=8, va='center',
                  ha='right' if below else 'left')
  ax.set_yticks(range(len(lines)), [plain(name, 60) for _, name, _ in lines])
  ax.set_ylim(len(lines) - 0.4, -0.7)
  ax.set_xlim(0, 100)
  ax.set_xlabel('test accuracy, %; the best row of each line within the budget '
                'of parameters is named')
  ax.plot([], [], color=FLOOR, linewidth=3, label='highest floor')
  _name_families(ax, [row for _, _, rows in lines for row in rows], _ALPHA)
  legend(fig, 7)
  return _svg(fig)


def _beside(means):
  """How far above its line each mark is drawn, so that none hides another.

  Each in turn takes the nearest place that is free; 0 where none is.
  """
  taken, ups = set(), []
  for mean in means:
    up = next((up for up in _LEVELS if all(
        abs(mean - other) > _APART for other, there in taken if there == up)),
              0.0)
    taken.add((mean, up))
    ups.append(up)
  return ups


def _comparable(board):
  """(name, finished rows) of each protocol of a task, as the protocol says."""
  found = [(f'{board.task.title}, {key.protocol}',
            [row for row in members if row.finished])
           for key, members in board.tables().items() if not key.changed]
  return [(name, rows) for name, rows in found if rows]


def _accuracy(board):
  """One line per row: a filled mark for the mean of seeds, small open ones for
  these, a large open one for a row of one seed."""
  tables = _first(board)
  lines = sum(map(len, tables.values())) + len(tables)
  fig = figure.Figure(figsize=(8, 1.6 + 0.2 * lines), layout='constrained')
  ax = fig.subplots()
  ticks = []
  for key, members in tables.items():
    ticks.append((len(ticks), f'{plain(key.title, 48)}:'))
    for row in members:
      y = len(ticks)
      ticks.append((y, _label(row)))
      _bar(ax, row, y)
      several = len(row.accuracies) > 1
      if several:
        ax.plot([100 * a for a in row.accuracies], [y] * len(row.accuracies),
                color=colour(row.family), **_SEED)
      ax.plot(100 * row.mean, y, color=colour(row.family),
              **(_MEAN if several else _SINGLE))
  shown = [row for members in tables.values() for row in members]
  _name_families(ax, shown)
  _name_marks(ax, shown)
  _draw_floors(board.floors, ax.axvline)
  ax.set_yticks(*zip(*ticks, strict=True))
  for tick, (_, text) in zip(ax.get_yticklabels(), ticks, strict=True):
    if text.endswith(':'):
      tick.set_fontweight('bold')
  ax.grid(axis='y', visible=False)
  ax.set_ylim(lines - 0.4, -0.6)
  ax.xaxis.set_major_locator(ticker.MaxNLocator(steps=[1, 2, 5, 10]))
  ax.set_xlabel('test accuracy, %')
  _title(fig, f'{board.task.title}: accuracy with its 95% interval'
         f'{_left_out(board.finished)}')
  legend(fig, 2)
  return _svg(fig)


def _first(board):
  """{table: its finished rows, the best first}, `MOST` rows in all."""
  tables, left = {}, MOST
  for key, members in board.tables().items():
    rows = [row for row in members if row.finished][:left]
    if rows:
      tables[key] = rows
    left -= len(rows)
  return tables


def _left_out(rows):
  return f'; {MOST} of {len(rows)} rows' if len(rows) > MOST else ''


def _timed(board, speeds):
  """A row of each model that was timed, of the protocol with most; [] of
  fewer than three: models were timed in one configuration only."""
  if not speeds:
    return []
  tables = [[board.of_model(key.protocol, model)
             for model in {row.model for row in members} & set(speeds.faster)]
            for key, members in board.tables().items() if not key.changed]
  rows = max(([row for row in table if row.finished] for table in tables),
             key=len, default=[])
  rows.sort(key=lambda row: (-row.mean, row.model))
  return rows if len(rows) > 2 else []


def _speed(board, speeds):
  """One mark per model: accuracy against speed, its area is the memory."""
  rows = _timed(board, speeds)
  shown = rows[:MOST]
  faster, memory = ([of[row.model] for row in shown]
                    for of in (speeds.faster, speeds.memory))
  most = max(memory)
  areas = [max(_LARGEST * size / most, 4) for size in memory]
  fig = figure.Figure(figsize=(8, 4 + 0.06 * len(shown)), layout='constrained')
  ax = fig.subplots()
  ax.scatter(faster, [100 * row.mean for row in shown], areas,
             [colour(row.family) for row in shown], alpha=_ALPHA,
             edgecolors='white', linewidths=0.5)
  ax.set_xscale('log')
  ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
  ax.xaxis.set_major_formatter(lambda value, _: f'{value:g}')
  ax.xaxis.set_minor_formatter(ticker.NullFormatter())
  ax.margins(0.12)
  _name_families(ax, shown, _ALPHA)
  ax.scatter([], [], _LARGEST, 'white', edgecolors='black', linewidths=0.5,
             label=f'{most / 2**30:.3g} GiB')
  ax.scatter([], [], _LARGEST / 4, 'white', edgecolors='black', linewidths=0.5,
             label=f'{most / 2**32:.3g} GiB')
  ax.set_xlabel('training steps in the time of one of the Transformer, '
                f'{plain(speeds.what, 60)}')
  ax.set_ylabel('test accuracy, %')
  _title(fig, f'{board.task.title}, {plain(shown[0].table.title, 48)}: '
         f'accuracy, speed and memory of that step (area){_left_out(rows)}')
  legend(fig, 5)
  labels.place(
      ax, [(x, 100 * row.mean) for x, row in zip(faster, shown, strict=True)],
      [plain(row.model, 48) for row in shown],
      [math.sqrt(area / math.pi) for area in areas])
  return _svg(fig)


def colour(family: str) -> str:
  """The colour of a family of mechanisms."""
  return _FAMILY.get(family, _OTHER)


def _bar(ax, row, y):
  """The interval of a row."""
  ax.plot([100 * row.interval.low, 100 * row.interval.high], [y, y],
          color=colour(row.family), linewidth=1.5, alpha=0.5)


def legend(fig: figure.Figure, columns: int) -> None:
  """Puts a legend below a figure, in so many columns or as many as have room.

  Letters are smaller where even one column has not.
  """
  size = _STYLE['font.size']
  while True:
    made = fig.legend(loc='outside lower center', ncols=columns, fontsize=size)
    wide = made.get_window_extent().width / fig.bbox.width
    if wide <= 1:
      return
    made.remove()
    if columns > 1:
      columns -= 1
    else:
      size *= 0.98 / wide


def _name_families(ax, rows, alpha=1):
  """What the colours of rows mean, for the legend."""
  shown = {row.family for row in rows}
  for family in sorted(shown, key=lambda name: (
      [*FAMILIES, name].index(name), name)):
    ax.plot([], [], 'o', color=colour(family), label=_legend(family),
            alpha=alpha, markeredgecolor='white' if alpha < 1 else None)


def _name_marks(ax, rows):
  """What the shapes of marks mean, for the legend."""
  several = [len(row.accuracies) > 1 for row in rows]
  marks = [('mean of several seeds', _MEAN), ('its seeds', _SEED)]
  for name, mark in (marks * any(several)
                     + [('one seed', _SINGLE)] * (not all(several))):
    ax.plot([], [], color='black', label=name, **mark)


def _title(fig, text):
  """In the middle of the figure, in as many lines as it takes."""
  fig.suptitle('\n'.join(textwrap.wrap(text, _LETTERS)), fontsize='large')


def _draw_floors(floors, line):
  for floor, dash in zip(floors, _cycle(DASHES), strict=False):
    line(100 * floor.accuracy, linestyle=dash, color=FLOOR, linewidth=1.2,
         label=f'floor: {plain(floor.name, 60)} {100 * floor.accuracy:.2f}')


def _label(row):
  return plain(row.name, 48)


def _legend(text):
  """A name for the legend, which shows none that begins with a line."""
  return plain(text, 48).lstrip('_') or 'unnamed'


def _cycle(values):
  """`values` over and over, but not without end."""
  return [values[i % len(values)] for i in range(100)]


def _svg(fig):
  out = io.BytesIO()
  fig.savefig(out, format='svg',
              metadata={'Date': None, 'Creator': None, 'Format': None})
  return out.getvalue()
