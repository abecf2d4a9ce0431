"""Tables over tasks: the best rows, and each group's mean accuracies."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from lra.report import columns, published, rows, texts
from lra.report.column import Table
from lra.report.formats import percent
from lra.report.row import Row, mean
from lra.report.rows import TaskBoard


@dataclasses.dataclass(frozen=True)
class Best:
  """The best row of a task and a protocol; None where none is finished.

  Attributes:
    board: the task's.
    row: that row.
    models: of how many models it is the best.
  """
  board: TaskBoard
  row: Row | None
  models: int = 0


@dataclasses.dataclass(frozen=True)
class Score:
  """A mean over seeds.

  Attributes:
    accuracy: a fraction, or None.
    digits: after the point.
    heavy: whether the model has more than 110% of the Transformer's parameters.
    failed: whether seeds are missing in it, which did not finish.
    elsewhere: whether it is on other data than the floors or other rows.
  """
  accuracy: float | None
  digits: int = 2
  heavy: bool = False
  failed: bool = False
  elsewhere: bool = False

  @property
  def text(self) -> str:
    marks = '†' * self.heavy + '‡' * self.failed + '§' * self.elsewhere
    return percent(self.accuracy, self.digits) + (marks and f' {marks}')


@dataclasses.dataclass(frozen=True)
class Line:
  """A line of an overview.

  Attributes:
    model, protocol: what has these scores.
    scores: of each task.
    is_floor: whether it is that of the highest floors.
  """
  model: str
  protocol: str
  scores: Mapping[str, Score]
  is_floor: bool = False

  def mean(self, names: Sequence[str]) -> Score:
    """Over tasks; a score of nothing where one of them has none."""
    scores = [self.scores.get(name, Score(None)) for name in names]
    found = [score.accuracy for score in scores]
    return Score(None) if None in found else Score(
        mean(found), min(score.digits for score in scores),
        any(score.heavy for score in scores),
        any(score.failed for score in scores),
        any(score.elsewhere for score in scores))


@dataclasses.dataclass(frozen=True)
class Group:
  """The tasks of one part of the page: those with rows, and those of the others
  that are named there."""
  name: str
  begun: list[TaskBoard]
  waiting: list[TaskBoard]

  title = property(lambda self: texts.GROUPS[self.name][0])
  what = property(lambda self: texts.GROUPS[self.name][1])

  @property
  def overview(self) -> Table:
    """Mean accuracies, one column for each task, floors above the scores.

    And their means over tasks as published ones have, once a line has all.
    """
    boards = self.begun
    floors = Line('highest floor', '', {
        b.task.name: Score(b.highest) for b in boards}, is_floor=True)
    pairs = sorted({(r.protocol, r.model) for b in boards for r in b.rows
                    if not r.changes})
    lines = [Line(model, protocol, {
        b.task.name: _score(b.of_model(protocol, model)) for b in boards})
        for protocol, model in pairs]
    averages = [names for names in published.AVERAGES if any(
        line.mean(names).accuracy is not None for line in lines)]
    return Table(columns.overview([b.task for b in boards], averages),
                 [floors, *lines], pinned=1)


def _score(row):
  if row is None:
    return Score(None)
  failed = bool(row.finished) and len(row.finished) < len(row.runs)
  return Score(row.mean, row.digits, row.heavy, failed, row.elsewhere)


def best(boards: Iterable[TaskBoard]) -> Table:
  """The best rows of the full tasks that have rows."""
  lines = []
  for board in boards:
    if board.task.group == 'full' and board.rows:
      found = [
          Best(board, rows.best(members), len({
              row.model for row in members if row.finished}))
          for key, members in board.tables().items() if not key.changed]
      lines += [best for best in found if best.row] or [Best(board, None)]
  return columns.told(columns.BEST, lines)


def groups(boards: Iterable[TaskBoard]) -> list[Group]:
  """The parts of the page, in its order, each with its tasks among `boards`."""
  return [Group(name, *([b for b in boards if b.task.group == name
                         and bool(b.rows) == begun] for begun in (True, False)))
          for name in texts.GROUPS]


def with_floor(board: TaskBoard) -> str:
  """A task and its highest floor, in words."""
  floor = board.highest_floor
  if not floor:
    return f'{board.task.title} (no floor has been computed)'
  return (f'{board.task.title} (highest floor {percent(floor.accuracy)} %, '
          f'{floor.name})')
