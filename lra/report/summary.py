"""Makes a table of models x tasks with mean accuracies, by protocol."""

import dataclasses
from collections.abc import Mapping, Sequence

from lra import tasks
from lra.formats import percent
from lra.report import published
from lra.report.columns import Column, Table, text_column
from lra.report.row import Row, mean
from lra.report.row import Table as Key
from lra.report.rows import TaskBoard, full
from lra.report.tables import none_above


@dataclasses.dataclass(frozen=True)
class Cell:
  """A score of a model on a task, or a mean of such scores.

  Attributes:
    accuracy: a fraction, or None.
    digits: digits after the point of percentages.
    half: half the width of the 95% interval, a fraction, or None.
    best: whether it is not significantly worse than the best of its table.
    marks: marks that `texts.MARKS` explains.
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
  """A line of the table: a model, or the baselines.

  Attributes:
    model, protocol: its model and protocol; the protocol of baselines is ''.
    cells: task -> its cell.
  """
  model: str
  protocol: str
  cells: Mapping[str, Cell]

  @property
  def is_baseline(self) -> bool:
    return not self.protocol

  def mean(self, names: Sequence[str]) -> Cell:
    """Returns the mean over tasks; empty if one of them has no score."""
    cells = [self.cells.get(name, Cell()) for name in names]
    found = [cell.accuracy for cell in cells]
    if None in found:
      return Cell()
    marks = ''.join(m for m in '†‡§' if any(m in cell.marks for cell in cells))
    return Cell(mean(found), min(cell.digits for cell in cells), marks=marks)


@dataclasses.dataclass(frozen=True)
class Summary:
  """The table of a protocol.

  Attributes:
    protocol: its name.
    boards: the tasks that have rows under it.
    table: the baselines first, then the models, the best on the first task
      first.
    beaten, unbeaten: the titles of the tasks on which some row, or none, is
      significantly better than the baseline.
  """
  protocol: str
  boards: list[TaskBoard]
  table: Table
  beaten: list[str]
  unbeaten: list[str]


def of_group(boards: Sequence[TaskBoard], group: str) -> list[Summary]:
  """Returns the tables of the 'full', 'mini' or 'probe' tasks, by protocol.

  All six tasks of Long Range Arena have a column, others if they have rows.
  Only runs with the settings of their protocol count.
  """
  known = full(boards) if group == 'full' else [
      board for board in boards if board.task.group == group]
  protocols = sorted({key.protocol for board in known
                      for key in board.tables() if not key.changed})
  return [_summary(known, protocol) for protocol in protocols]


def _summary(boards, protocol):
  begun = {board.task.name: board.tables()[Key(protocol)] for board in boards
           if Key(protocol) in board.tables()}
  shown = [board for board in boards
           if board.task.name in (*begun, *published.SCORES)]
  models = {row.model for rows in begun.values() for row in rows}
  lines = [Line(model, protocol, {
      board.task.name: _cell(board.of_model(protocol, model))
      for board in shown}) for model in models]
  lines.sort(key=lambda line: (
      [-(cell.accuracy or 0) for cell in line.cells.values()], line.model))
  baselines = Line('baseline', '', {
      board.task.name: Cell(board.highest) for board in shown})
  means = [names for names in published.AVERAGES if any(
      line.mean(names).accuracy is not None for line in lines)]
  with_baseline = {name: rows for name, rows in begun.items()
                   if any(row.above_baseline is not None for row in rows)}
  unbeaten = [name for name, rows in with_baseline.items() if none_above(rows)]
  return Summary(
      protocol, [board for board in shown if board.task.name in begun],
      Table(_columns(shown, means), [baselines, *lines], pinned=1),
      _titles(name for name in with_baseline if name not in unbeaten),
      _titles(unbeaten))


def _titles(names):
  return [tasks.TASKS[name].title for name in names]


def _cell(row: Row | None) -> Cell:
  if row is None or row.mean is None:
    return Cell()
  by_chance = row.above_baseline is not None and not row.off_baseline
  below = row.off_baseline and row.above_baseline < 0
  failed = len(row.finished) < len(row.runs)
  marks = ('=' * by_chance + '<' * below + '†' * row.heavy + '‡' * failed
           + '§' * row.elsewhere)
  half = (row.interval.high - row.interval.low) / 2
  return Cell(row.mean, row.digits, half,
              row.rank is not None and 1 in row.rank.like, marks)


def _columns(boards, means):
  def column(name, cell):
    return Column(name, lambda line: cell(line).text, True,
                  lambda line: line.is_baseline or cell(line).best,
                  lambda line: cell(line).accuracy)
  return [
      text_column('model', lambda line: line.model,
                  strong=lambda line: line.is_baseline),
      *(column(board.task.title, lambda line, name=board.task.name:
               line.cells[name]) for board in boards),
      *(column(f'mean of {len(names)}', lambda line, names=names:
               line.mean(names)) for names in means)]
