"""Chooses the figures of the leaderboard, and redraws them if necessary.

A figure ends with two digests: of its data and the drawing code, and of its own
bytes. While both match, its file is kept: drawing a figure takes a second, and
most of the time to make a page is drawing.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from lra.board import longer, summary
from lra.board.boards import TaskBoard, best, full
from lra.board.inputs import Speeds
from lra.core import tasks

OVERVIEW = 'full_tasks.svg'
PROFILES = 'mechanisms.svg'
# Most rows in a figure: there is no room for more names.
MOST = 80
_CODE = ('board/charts.py', 'core/style.py', 'board/panels.py',
         'board/front.py')
_SEAL = re.compile(rb'<!-- drawn from ([0-9a-f]{64}), is ([0-9a-f]{64}) -->\n')


@dataclasses.dataclass(frozen=True)
class Figure:
  """A figure of the page.

  Attributes:
    name: name of its file.
    shows: its description, for readers who cannot see it.
    chart: the function of `lra.board.charts` or `panels` that draws it.
    data: the arguments of that function, as JSON values.
  """
  name: str
  shows: str
  chart: str
  data: tuple[Any, ...]

  @property
  def source(self) -> str:
    """The digest of its data and of the drawing code."""
    return hashlib.sha256(_code() + json.dumps(
        [self.chart, self.data]).encode()).hexdigest()


def overview(boards: Sequence[TaskBoard]) -> list[Figure]:
  """Returns the figure of the full tasks, if one has a row."""
  if not any(board.rows for board in boards if board.task.group == 'full'):
    return []
  lines = [line for board in full(boards) for line in _lines(board)]
  none = [board.task.title for board in full(boards) if not board.finished]
  return [Figure(
      OVERVIEW, 'test accuracies and the baseline of each full task',
      'overview', (lines, none))]


def task_figures(board: TaskBoard, speeds: Speeds | None) -> list[Figure]:
  """Returns the figures of a task.

  Args:
    board: its rows.
    speeds: speeds of the models; None for no figure of speed.
  """
  name, title, found = board.task.name, board.task.title, []
  if board.finished:
    found.append(Figure(
        f'{name}_accuracy.svg',
        f'{title}: test accuracy of each row with its interval, and baselines',
        'accuracy',
        (f'{title}: accuracy with its 95% interval{_left_out(board.finished)}',
         _first(board), [(b.name, b.accuracy) for b in board.baselines])))
  if longer.tested(board):
    shown = longer.panels(board)[:MOST]
    found.append(Figure(
        f'{name}_lengths.svg',
        f'{title}: scaled accuracy against the length of the sequences, one '
        'panel for each row', 'lengths',
        (f'{title}: sequences longer than in training', board.task.seq_len,
         shown)))
  rows = _sized(board) if board.task.probe else []
  if rows:
    found.append(Figure(
        f'{name}_states.svg',
        f'{title}: test accuracy against the size of the state', 'states',
        (f'{title}, {rows[0].table.title[:48]}: accuracy against state size',
         [{'name': row.name, 'family': row.family, 'state': row.state_size,
           'mean': row.mean, 'low': row.interval.low,
           'high': row.interval.high} for row in rows])))
  rows = _timed(board, speeds)
  if rows:
    shown = rows[:MOST]
    models = sorted({row.model for row in shown})
    found.append(Figure(
        f'{name}_speed.svg',
        f'{title}: test accuracy against speed; the area of a mark is the '
        'memory', 'speed',
        (f'{title}, {shown[0].table.title[:48]}: accuracy against speed (area: '
         f'memory of a step){_left_out(rows)}', list(map(_mark, shown)),
         {name: speeds.faster[name] for name in models},
         {name: speeds.memory[name] for name in models}, speeds.what)))
  return found


def profiles(boards: Sequence[TaskBoard]) -> list[Figure]:
  """Returns the figure of all mechanisms on mini tasks and probes, if any."""
  table = summary.side_by_side(boards)
  if not table:
    return []
  names = list(table.items[0].cells)
  highest = table.items[0].cells
  found = []
  for line in table.items[1:]:
    bars = [_above(line.cells.get(name), highest[name]) for name in names]
    if sum(bar is not None for bar in bars) > 1:
      found.append({'name': line.model, 'family': line.family, 'bars': bars})
  if not found:
    return []
  return [Figure(
      PROFILES, 'a profile of each mechanism: a bar for each mini task and '
      'probe', 'profiles',
      ([tasks.TASKS[name].title for name in names], found))]


def _above(cell, baseline):
  """Returns an accuracy from 0 (the baseline) to 1 (no error), or None."""
  if cell is None or cell.accuracy is None:
    return None
  least = baseline.accuracy or 0.0
  return (cell.accuracy - least) / (1 - least)


def _sized(board):
  """Returns the rows with a state size under the protocol with most of them."""
  tables = [[row for row in members if row.finished and row.state_size]
            for key, members in board.tables().items() if not key.departs]
  rows = max(tables, key=len, default=[])
  return rows[:MOST] if len(rows) > 2 else []


def draw(figures: Sequence[Figure], folder: pathlib.Path) -> dict[str, bytes]:
  """Returns file name -> SVG; keeps files of `folder` with valid digests.

  Args:
    figures: figures of the page.
    folder: the folder of the last page's figures; may be missing.
  """
  return {figure.name: kept(figure, folder) or _drawn(figure)
          for figure in figures}


def kept(figure: Figure, folder: pathlib.Path) -> bytes | None:
  """Returns the file of a figure if it shows these data, or None."""
  path = folder / figure.name
  if not path.is_file():
    return None
  data = path.read_bytes()
  seal = _SEAL.fullmatch(data[-_LENGTH:])
  holds = seal and (seal[1].decode(), seal[2].decode()) == (
      figure.source, hashlib.sha256(data[:-_LENGTH]).hexdigest())
  return data if holds else None


def _drawn(figure):
  # Imported late: matplotlib takes a second.
  from lra.board import charts, panels
  from lra.core.style import style

  def shaped(fields):
    """Returns a JSON object as the class with just its fields, if any."""
    for kind in (charts.Mark, charts.Line, panels.Panel, panels.Profile,
                 panels.Size):
      if set(fields) == set(kind.__dataclass_fields__):
        return kind(**fields)
    return fields

  data = json.loads(json.dumps(figure.data), object_hook=shaped)
  with style():
    room = charts if hasattr(charts, figure.chart) else panels
    return sealed(getattr(room, figure.chart)(*data), figure)


def sealed(svg: bytes, figure: Figure) -> bytes:
  """Appends its digests to a figure."""
  return svg + _seal(figure.source, hashlib.sha256(svg).hexdigest())


def _seal(source, digest):
  return f'<!-- drawn from {source}, is {digest} -->\n'.encode()


_LENGTH = len(_seal('0' * 64, '0' * 64))


@functools.cache
def _code():
  """Returns the drawing code: once changed, it may draw data differently."""
  folder = pathlib.Path(__file__).parents[1]
  return b''.join((folder / name).read_bytes() for name in _CODE)


def _mark(row):
  return {'name': row.name, 'model': row.model, 'family': row.family,
          'mean': row.mean, 'low': row.interval.low, 'high': row.interval.high,
          'accuracies': row.accuracies}


def _lines(board):
  """Yields a line of the overview for each protocol of a task."""
  found = [(f'{board.task.title}, {key.protocol}',
            [row for row in members if row.finished])
           for key, members in board.tables().items() if not key.departs]
  for name, rows in found:
    if not rows:
      continue
    first = best(rows)
    place = next((i for i, row in enumerate(rows) if row is first), None)
    better = first is None or first.baseline is None or (
        first.off_baseline and first.above_baseline > 0)
    yield {'name': name, 'baseline': board.highest,
           'marks': list(map(_mark, rows)), 'best': place,
           'note': '' if better else '\nnot better than the baseline'}


def _first(board):
  """Returns (title, finished rows, best first) of each table, `MOST` in all."""
  tables, left = [], MOST
  for key, members in board.tables().items():
    rows = [row for row in members if row.finished][:left]
    if rows:
      tables.append((key.title, list(map(_mark, rows))))
    left -= len(rows)
  return tables


def _left_out(rows):
  return f'; {MOST} of {len(rows)} rows' if len(rows) > MOST else ''


def _timed(board, speeds):
  """Returns the rows of timed models under the protocol that has most of them.

  Each model has one row, since it was timed in one configuration. With fewer
  than three rows the result is [].
  """
  if not speeds:
    return []
  tables = [[board.of_model(key.protocol, model)
             for model in {row.model for row in members} & set(speeds.faster)]
            for key, members in board.tables().items() if not key.departs]
  rows = max(([row for row in table if row.finished] for table in tables),
             key=len, default=[])
  rows.sort(key=lambda row: (-row.mean, row.model))
  return rows if len(rows) > 2 else []
