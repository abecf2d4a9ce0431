"""Figures of the leaderboard: accuracy with floors, accuracy against speed.

SVG without dates or random ids, so that the same records give the same bytes
with one version of matplotlib.
"""

import contextlib
import io
import math
import warnings

import matplotlib
import matplotlib.style
from matplotlib import figure, ticker

from lra import tasks
from lra.report import rows
from lra.report.formats import plain

COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9',
           '#000000')
DASHES = ('--', ':', '-.', (0, (6, 2, 1, 2, 1, 2)), (0, (1, 4)))
MARKERS = 'osD^vP*X'
FLOOR = '#666666'
# Steps per second of no run there could be: an axis has an end.
SLOWEST = 1e-9
_STYLE = {
    'font.size': 9, 'axes.grid': True, 'grid.color': '#e6e6e6',
    'axes.axisbelow': True, 'axes.spines.top': False,
    'axes.spines.right': False, 'legend.frameon': False,
    'text.parse_math': False,
}


@contextlib.contextmanager
def style():
  """Our looks, untouched by the user's own matplotlib settings."""
  with (warnings.catch_warnings(), matplotlib.rc_context(),
        matplotlib.style.context(['default', _STYLE])):
    # Letters that a font has not, points that all are one.
    warnings.simplefilter('ignore', UserWarning)
    matplotlib.rcParams['svg.hashsalt'] = 'lra'
    matplotlib.rcParams['svg.fonttype'] = 'none'
    yield


def names(task: tasks.Task) -> dict[str, str]:
  """File name -> what it shows, of each figure of `task`."""
  return {f'{task.name}_accuracy.svg': 'test accuracy of each row and floors',
          f'{task.name}_speed.svg': 'test accuracy against steps per second'}


def draw(board: rows.TaskBoard) -> dict[str, bytes]:
  """Returns file name -> SVG of each figure of a task with finished runs."""
  with style():
    return dict(zip(names(board.task), (_accuracy(board), _speed(board)),
                    strict=True))


def _accuracy(board):
  """One line per row: a filled mark for the mean, open ones for seeds."""
  shown = [row for members in board.tables().values() for row in members
           if row.finished]
  colours = dict(zip(board.tables(), _cycle(COLOURS), strict=False))
  fig = figure.Figure(figsize=(8, 1.6 + 0.22 * len(shown)),
                      layout='constrained')
  ax = fig.subplots()
  for y, row in enumerate(shown):
    colour = colours[row.table]
    ax.plot([100 * a for a in row.accuracies], [y] * len(row.accuracies), 'o',
            markersize=5, markerfacecolor='none', color=colour, alpha=0.6)
    ax.plot(100 * row.mean, y, 'o', markersize=7, color=colour)
  for table, colour in colours.items():
    ax.plot([], [], 'o', color=colour, label=f'protocol {table.title}')
  _draw_floors(board.floors, ax.axvline)
  ax.set_yticks(range(len(shown)), [_label(row) for row in shown])
  ax.set_ylim(len(shown) - 0.5, -0.5)
  ax.set_xlabel('test accuracy, %')
  ax.set_title(f'{board.task.title}: filled = mean, open = single seeds')
  fig.legend(loc='outside lower center', ncols=2)
  return _svg(fig)


def _speed(board):
  """One point per row and device."""
  several = len(board.tables()) > 1
  points = [(speed, 100 * row.mean, _legend(device),
             f'{row.model}, {row.table.title}' if several else row.model)
            for row in board.rows if row.finished
            for device, speed in zip(
                row.devices, row.per_device('steps_per_s'), strict=True)
            if speed and speed > SLOWEST]
  fig = figure.Figure(figsize=(8, 4.5 + 0.08 * len(points)),
                      layout='constrained')
  ax = fig.subplots()
  devices = sorted({p[2] for p in points})
  for marker, colour, device in zip(_cycle(MARKERS), _cycle(COLOURS), devices,
                                    strict=False):
    mine = [p for p in points if p[2] == device]
    ax.plot([p[0] for p in mine], [p[1] for p in mine], marker,
            color=colour, markersize=5, label=device)
  ax.set_xscale('log')
  ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
  ax.xaxis.set_major_formatter(lambda value, _: f'{value:g}')
  ax.xaxis.set_minor_formatter(ticker.NullFormatter())
  ax.margins(0.12)
  _draw_floors(board.floors, ax.axhline)
  ax.set_xlabel('steps/s, without compilation and evaluation')
  ax.set_ylabel('mean test accuracy, %')
  ax.set_title(f'{board.task.title}: accuracy against speed')
  fig.legend(loc='outside lower center', ncols=2)
  fig.draw_without_rendering()
  _place_labels(ax, points)
  return _svg(fig)


def _draw_floors(floors, line):
  for floor, dash in zip(floors, _cycle(DASHES), strict=False):
    line(100 * floor.accuracy, linestyle=dash, color=FLOOR, linewidth=1.2,
         label=f'floor: {plain(floor.name, 60)} {100 * floor.accuracy:.2f}')


def _label(row):
  return plain(row.model + (f' ({row.variant})' if row.variant else ''), 48)


def _legend(text):
  """A name for the legend, which shows none that begins with a line."""
  return plain(text, 48).lstrip('_') or 'unnamed'


def _cycle(values):
  """`values` over and over, but not without end."""
  return [values[i % len(values)] for i in range(100)]


def _place_labels(ax, points):
  """Names beside their points, moved apart where they would collide.

  Sizes are estimated from the number of letters, since measured ones depend
  on the fonts of the machine.
  """
  height = 10.0
  to_pixels = ax.transData.transform
  marks = [tuple(to_pixels(p[:2])) for p in points]
  taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in marks]
  for (speed, score, _, name), (x, y) in zip(points, marks, strict=True):
    width = 6.0 * len(name)
    dx, dy = _free_offset(x, y, width, height, taken)
    taken.append((x + dx, y + dy, x + dx + width, y + dy + height))
    scale = 72 / ax.figure.dpi
    far = math.hypot(max(dx, -dx - width, 0), max(dy, -dy - height, 0)) > 12
    ax.annotate(
        name, (speed, score), (dx * scale, dy * scale),
        textcoords='offset points', fontsize=7, color='#333333',
        arrowprops={'arrowstyle': '-', 'lw': 0.4, 'color': '#999999'}
        if far else None)


def _free_offset(x, y, width, height, taken):
  """Offset of the nearest of some places that overlap nothing taken."""
  def overlap(offset):
    left, low = x + offset[0], y + offset[1]
    return sum(
        max(0, min(left + width, b[2]) - max(left, b[0]))
        * max(0, min(low + height, b[3]) - max(low, b[1])) for b in taken)
  places = []
  for gap in (6, 16, 28, 42, 58, 76):
    places += [
        (gap, -height / 2), (-gap - width, -height / 2),
        (-width / 2, gap), (-width / 2, -gap - height),
        (gap, gap), (gap, -gap - height),
        (-gap - width, gap), (-gap - width, -gap - height)]
  return min(places, key=overlap)


def _svg(fig):
  out = io.BytesIO()
  fig.savefig(out, format='svg',
              metadata={'Date': None, 'Creator': None, 'Format': None})
  return out.getvalue()
