"""Tables of accuracies: models x tasks, and a task by kinds of examples."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from lra.board import inputs
from lra.board.boards import TaskBoard, chosen, full
from lra.board.rows import Row, TableKey, mean
from lra.board.tables import Column, Table, none_above, percents, text_column
from lra.core import tasks
from lra.core.formats import NONE, count, percent


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
    model: its model.
    protocol: its protocol, '' for baselines and if tasks have their own.
    cells: task -> its cell.
    states, params: rising state sizes and numbers of parameters of its rows
      with a score.
    family: kind of mechanism of the model, '' for baselines.
  """
  model: str
  protocol: str
  cells: Mapping[str, Cell]
  states: Sequence[int] = ()
  params: Sequence[int] = ()
  family: str = ''

  @property
  def is_baseline(self) -> bool:
    return not self.family

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
    unbeaten: the titles of the tasks on which no row is significantly better
      than the baseline.
  """
  protocol: str
  boards: list[TaskBoard]
  table: Table
  unbeaten: list[str]


def by_protocol(boards: Sequence[TaskBoard], group: str) -> list[Summary]:
  """Returns the tables of the 'full', 'mini' or 'probe' tasks, by protocol.

  All six tasks of Long Range Arena have a column, others if they have rows.
  Only runs with the settings of their protocol count.
  """
  known = full(boards) if group == 'full' else [
      board for board in boards if board.task.group == group]
  protocols = sorted({key.protocol for board in known
                      for key in board.tables() if not key.departs})
  return [_summary(known, protocol) for protocol in protocols]


def _summary(boards, protocol):
  tables = {board.task.name: board.tables() for board in boards}
  begun = {name: found[TableKey(protocol)] for name, found in tables.items()
           if TableKey(protocol) in found}
  shown = [board for board in boards
           if board.task.name in (*begun, *inputs.SCORES)]
  models = {row.model for rows in begun.values() for row in rows}
  lines = [_line(model, protocol, {
      board.task.name: board.of_model(protocol, model) for board in shown})
           for model in models]
  lines.sort(key=lambda line: (
      [-(cell.accuracy or 0) for cell in line.cells.values()], line.model))
  baselines = Line('baseline', '', {
      board.task.name: Cell(board.highest) for board in shown})
  means = [names for names in inputs.AVERAGES if any(
      line.mean(names).accuracy is not None for line in lines)]
  unbeaten = [name for name, rows in begun.items() if none_above(rows) and any(
      row.above_baseline is not None for row in rows)]
  return Summary(
      protocol, [board for board in shown if board.task.name in begun],
      Table(_columns(shown, means), [baselines, *lines], pinned=1),
      _titles(unbeaten))


def _line(model, protocol, rows):
  """Returns the line of a model; `rows` are by task, or None."""
  scored = [row for row in rows.values() if row and row.mean is not None]
  return Line(model, protocol,
              {name: _cell(row) for name, row in rows.items()},
              sorted({row.state_size for row in scored} - {None}),
              sorted({row.params for row in scored} - {None}),
              next(row.family for row in rows.values() if row))


def _titles(names):
  return [tasks.get(name).title for name in names]


def _cell(row: Row | None) -> Cell:
  if row is None or row.mean is None:
    return Cell()
  below = row.off_baseline and row.above_baseline < 0
  failed = len(row.finished) < len(row.runs)
  marks = ('=' * row.by_chance + '<' * below + '†' * row.heavy + '‡' * failed
           + '§' * row.elsewhere)
  half = (row.interval.high - row.interval.low) / 2
  return Cell(row.mean, row.digits, half,
              row.rank is not None and 1 in row.rank.like, marks)


def _columns(boards, means=()):
  def column(name, cell):
    return Column(name, lambda line: cell(line).text,
                  lambda line: cell(line).accuracy,
                  strong=lambda line: line.is_baseline or cell(line).best)
  return [
      text_column('model', lambda line: line.model,
                  strong=lambda line: line.is_baseline),
      *(column(board.task.title, lambda line, name=board.task.name:
               line.cells.get(name, Cell())) for board in boards),
      *(column(f'mean of {len(names)}', lambda line, names=names:
               line.mean(names)) for names in means),
      _span('state size', lambda line: line.states)]


def _span(name, values):
  """Returns a column of the ends of rising values: tasks have other lengths."""
  def text(line):
    ends = dict.fromkeys([*values(line)[:1], *values(line)[-1:]])
    return ' to '.join(map(count, ends)) or NONE
  return Column(name, text, lambda line: next(iter(values(line)), None))


def side_by_side(found: Sequence[TaskBoard]) -> Table | None:
  """Returns one table of all mini tasks and probes; None without a row.

  Each task has the rows of the protocol that most of its rows have. Rows with
  the same changes of that protocol share a line below the line of their model.
  Lines are sorted by family and model.
  """
  known = [board for board in found
           if board.task.group in ('mini', 'probe') and board.finished]
  rows = {}
  for board in known:
    protocol, _ = collections.Counter(
        row.protocol for row in board.finished).most_common(1)[0]
    for row in board.finished:
      if row.protocol == protocol:
        name = row.family, row.model, row.own_changes
        rows.setdefault(name, {}).setdefault(board.task.name, []).append(row)
  lines = [_line(model + (changes and f' ({changes})'), '', {
      name: chosen(members) for name, members in of_task.items()})
           for (_, model, changes), of_task in sorted(rows.items())]
  baselines = Line('baseline', '', {
      board.task.name: Cell(board.highest) for board in known})
  model, *others = _columns(known)
  columns = [text_column('family', lambda line: line.family), model, *others,
             _span('parameters', lambda line: line.params)]
  return Table(columns, [baselines, *lines], pinned=1) if lines else None


def breakdown(board: TaskBoard) -> Table | None:
  """Returns a table of baselines, then rows; None if no record has parts.

  The columns are shares of answers equal to those of a simple rule, then
  accuracies on the kinds of examples. All are means over seeds.
  """
  rows = board.finished
  rules = sorted({name for row in rows for kept in _kept(row, 'agreement')
                  for name in kept})
  kinds = sorted({(name, len(value), value) for row in rows
                  for kept in _kept(row, 'parts')
                  for name, values in kept.items()
                  for value in values if len(values) > 1})
  if not (rules or kinds):
    return None
  baselines = [b for b in board.baselines if b.parts and not b.foreign]
  columns = [
      text_column('model', lambda x: x.name if isinstance(x, Row) else (
          f'baseline: {x.name}'), strong=lambda x: not isinstance(x, Row)),
      text_column('protocol', lambda x: (
          x.table.title if isinstance(x, Row) else '')),
      percents('accuracy %', lambda x: (
          x.mean if isinstance(x, Row) else x.accuracy)),
      *(percents(f'as {rule} %', lambda x, rule=rule: _known_mean(
          kept.get(rule) for kept in _kept(x, 'agreement'))) for rule in rules),
      *(percents(f'{name} {value} %',
                 lambda x, name=name, value=value: _known_mean(
                     _accuracy(kept, name, value) for kept in _kept(x, 'parts')
                 )) for name, _, value in kinds)]
  return Table(columns, [*baselines, *rows], pinned=len(baselines))


def _kept(item, field):
  """Returns a field of the test scores of each seed of a row or baseline."""
  if isinstance(item, Row):
    return [getattr(run.test, field) for run in item.finished]
  return [getattr(item, field)]


def alike(board: TaskBoard) -> str:
  """Returns a sentence on the properties that all test examples share."""
  known = {}
  for row in board.finished:
    for parts in _kept(row, 'parts'):
      for name, values in parts.items():
        known.setdefault(name, set()).update(values)
  return ' '.join(
      f'All test examples have {name} {values.pop()}, so the table has no '
      f'accuracy by {name}.'
      for name, values in sorted(known.items()) if len(values) == 1)


def _accuracy(parts, name, value):
  part = parts.get(name, {}).get(value)
  return part and part.accuracy


def _known_mean(scores):
  return mean([score for score in scores if score is not None])
