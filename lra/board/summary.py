"""Tables of accuracies: models x tasks."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lra.board import inputs
from lra.board.frame import Board, chosen
from lra.board.rows import mean
from lra.board.tables import Column, Table, lines, none_above, text
from lra.core import tasks
from lra.core.formats import NONE, count, percent


class Cell(NamedTuple):
  """A score of a model on a task, or a mean of such scores.

  It has so many `digits` after the point of percentages, and `half` the width
  of the 95% interval. It is among the `best` if it is not significantly worse
  than the best of its table. The page explains the `marks`.
  """
  accuracy: float | None = None
  digits: int = 2
  half: float | None = None
  best: bool = False
  marks: str = ''

  @property
  def text(self) -> str:
    half = '' if self.half is None else f' ±{percent(self.half, self.digits)}'
    marks = self.marks and f' {self.marks}'
    return f'{percent(self.accuracy, self.digits)}{half}{marks}'


@dataclasses.dataclass(frozen=True)
class Line:
  """A line of the table: a model, or the baselines, which have no family.

  `states` are the rising state sizes of its rows with a score.
  """
  model: str
  protocol: str
  cells: Mapping[str, Cell]
  states: Sequence[int] = ()
  family: str = ''

  def mean(self, names: Sequence[str]) -> Cell:
    """Returns the mean over tasks; empty if one of them has no score."""
    cells = [self.cells.get(name, Cell()) for name in names]
    found = [cell.accuracy for cell in cells]
    if None in found:
      return Cell()
    marks = ''.join(m for m in '†‡§' if any(m in cell.marks for cell in cells))
    return Cell(mean(found), min(cell.digits for cell in cells), marks=marks)


class Summary(NamedTuple):
  """The table of a protocol, named by it, and the tasks that have rows there.

  `unbeaten` are the titles of those on which no row is significantly better
  than the baseline.
  """
  protocol: str
  boards: list[Board]
  table: Table
  unbeaten: list[str]


def by_protocol(boards: Sequence[Board], group: str) -> list[Summary]:
  """Returns the tables of the 'full', 'mini', 'probe' or 'own' tasks.

  Each protocol has one, with a column for each task that has rows. Runs that
  change settings of their protocol have tables if there are no others, and on
  own tasks.
  """
  known = [board for board in boards if board.task.group == group]
  keys = sorted({key for board in known for key in board.tables()})
  usual = [key for key in keys if not key.departures]
  return [_summary(known, key) for key in (
      group != 'own' and usual or keys)]


def _summary(boards, key):
  found = {board.task.name: board.tables().get(key) for board in boards}
  begun = {name: lines(rows) for name, rows in found.items()
           if rows is not None}
  shown = [board for board in boards if board.task.name in begun]
  models = {row.model for rows in begun.values() for row in rows}
  found = [_line(model, key.protocol, {board.task.name: chosen(
      row for row in begun.get(board.task.name, ()) if row.model == model)
      for board in shown}) for model in models]
  found.sort(key=lambda line: (
      [-(cell.accuracy or 0) for cell in line.cells.values()], line.model))
  means = [names for names in inputs.AVERAGES if any(
      line.mean(names).accuracy is not None for line in found)]
  return Summary(
      key.title, [board for board in shown if board.task.name in begun],
      Table(_columns(shown, means), [_baselines(shown), *found], pinned=1),
      [tasks.get(name).title for name, rows in begun.items()
       if none_above(rows)])


def _baselines(boards):
  return Line('baseline', '', {
      board.task.name: Cell(board.highest) for board in boards})


def _line(model, protocol, rows):
  """Returns the line of a model; `rows` are by task, or None."""
  scored = [row for row in rows.values() if row and row.seeds]
  return Line(model, protocol,
              {name: _cell(row) for name, row in rows.items()},
              sorted({row.state_size for row in scored} - {None}),
              next(row.family for row in rows.values() if row))


def _cell(row):
  if row is None or not row.seeds:
    return Cell()
  marks = [mark for mark, is_so in (
      ('=', row.differs_from_baseline is False),
      ('<', row.differs_from_baseline and row.above < 0), ('†', row.heavy),
      ('‡', row.seeds < row.runs), ('§', row.foreign or row.apart)) if is_so]
  return Cell(row.accuracy, row.digits, (row.high - row.low) / 2,
              1 in (row.like or ()), ''.join(marks))


def _columns(boards, means=()):
  def column(name, cell):
    return Column(name, lambda line: cell(line).text, strong=lambda line: (
        not line.family or cell(line).best))
  return [
      text('model', 'model', strong=lambda line: not line.family),
      *(column(board.task.title, lambda line, name=board.task.name:
               line.cells.get(name, Cell())) for board in boards),
      *(column(f'mean of {len(names)}', lambda line, names=names:
               line.mean(names)) for names in means),
      Column('state size', lambda line: span(line.states))]


def span(values: Sequence[int]) -> str:
  """Returns the ends of rising values as text: tasks have other lengths."""
  ends = dict.fromkeys([*values[:1], *values[-1:]])
  return ' to '.join(map(count, ends)) or NONE
