"""Turns result records into the leaderboard of each task.

Only runs of classifiers are shown: other runs have no accuracy.
"""

import collections
import dataclasses
import pathlib
from collections.abc import Iterable, Mapping

from lra.board import inputs, statistics, store
from lra.board import rows as rows_lib
from lra.board.rows import Row, TableKey
from lra.board.statistics import Sample
from lra.core import bits, tasks


@dataclasses.dataclass(frozen=True)
class Baseline:
  """The score of a trivial or linear method.

  Attributes:
    name: name of the method.
    accuracy: a fraction.
    how: how the method works, and on which data.
    foreign: whether its data differ from the data of the measured baselines, or
      of most rows if no baseline was measured.
    parts: its accuracy by kind of example, see `scores.ClassificationScores`.
    agreement: always empty, since it is not measured for baselines.
    digits: decimals of its percentages.
  """
  name: str
  accuracy: float
  how: str
  foreign: bool = False
  parts: Mapping = dataclasses.field(default_factory=dict)
  agreement: Mapping = dataclasses.field(default_factory=dict)
  digits: int = 2


@dataclasses.dataclass
class TaskBoard:
  """The rows and baselines of one task.

  Attributes:
    task: the task.
    baselines: its baselines, lowest first.
    rows: its rows, by mean accuracy.
    spreads: spread of seeds in each of its tables with enough seeds.
    usual: whether any row is on the data of the committed baselines. The
      page's notes are about these data.
  """
  task: tasks.Task
  baselines: list[Baseline]
  rows: list[Row]
  spreads: dict[TableKey, statistics.Spread] = dataclasses.field(
      default_factory=dict)
  usual: bool = False

  @property
  def finished(self) -> list[Row]:
    """The rows with at least one finished run."""
    return [row for row in self.rows if row.finished]

  @property
  def highest(self) -> float | None:
    """Accuracy of the highest baseline, of the measured ones if any."""
    return max(((not b.foreign, b.accuracy) for b in self.baselines),
               default=(None, None))[1]

  def tables(self) -> dict[TableKey, list[Row]]:
    by_table = {}
    for row in sorted(self.rows, key=lambda r: r.table):
      by_table.setdefault(row.table, []).append(row)
    return by_table

  def of_model(self, protocol: str, model: str) -> Row | None:
    """Returns the model's row for an overview; test scores do not decide."""
    return chosen(r for r in self.rows
                  if r.model == model and r.table == TableKey(protocol))


def chosen(rows: Iterable[Row]) -> Row | None:
  """Returns the row of an overview; test scores do not decide."""
  return max(rows, default=None, key=lambda r: (
      not r.elsewhere, len(r.finished), r.largest('steps'),
      r.average('val', 'accuracy') or 0.0, r.variant))


def best(members: Iterable[Row]) -> Row | None:
  """Returns the first finished row with parameters within the budget.

  Rows on other data than the rest count only if there are no others.
  """
  found = [r for r in members if r.finished and not r.heavy]
  return min(found, default=None, key=lambda r: r.elsewhere)


def full(boards: Iterable[TaskBoard]) -> list[TaskBoard]:
  """Returns a board for every full task, an empty one if `boards` has none."""
  known = {board.task.name: board for board in boards}
  return [known.get(task.name) or TaskBoard(task, [], [])
          for task in tasks.TASKS.values() if task.group == 'full']


def load(runs_dir: pathlib.Path, baselines_dir: pathlib.Path,
         usual_dir: pathlib.Path | None = None
         ) -> tuple[list[TaskBoard], list[store.LeftOut]]:
  """Makes a TaskBoard for each task with records, in the order of TASKS.

  Rows are sorted by mean test accuracy, highest first, then by name.

  Args:
    runs_dir: folder of result records.
    baselines_dir: folder of records of baselines.
    usual_dir: folder of the baselines to use if `baselines_dir` has none for a
      task. They apply to rows on exactly their data, and to full tasks without
      a row if other full tasks have one. None stands for `baselines_dir`.

  Returns:
    The boards, and the records that are left out, since they are not valid or
    contradict others.
  """
  runs, left_out = store.read_classifiers(runs_dir)
  measured, invalid = store.read_baselines(baselines_dir)
  baselines = {record.task: record for record in measured}
  usual = baselines if usual_dir in (None, baselines_dir) else {
      record.task: record for record in store.read_baselines(usual_dir)[0]}
  rows, counted = rows_lib.group(runs), inputs.budgets()
  any_full = any(tasks.get(row.task).group == 'full' for row in rows)
  boards = []
  for task in tasks.TASKS.values():
    mine = [row for row in rows if row.task == task.name]
    common = usual.get(task.name)
    is_usual = bool(common) and any(
        row.data == common.fingerprint for row in mine)
    waits = any_full and not mine and task.group == 'full'
    known = baselines.get(task.name) or (
        common if is_usual or waits else None)
    if mine or known:
      board = _board(task, mine, known, counted)
      board.usual = is_usual
      boards.append(board)
  return boards, left_out + invalid


def _board(task, rows, measured, counted):
  for row in rows:
    _set_baseline(row, measured)
  for protocol in {row.protocol for row in rows}:
    rows_lib.compare_parameters([r for r in rows if r.protocol == protocol],
                                counted.get((protocol, task.name)))
  rows.sort(key=lambda r: (r.mean is None, -(r.mean or 0), r.model, r.variant,
                           r.protocol))
  board = TaskBoard(task, _baselines(rows, measured), rows)
  for key, table in board.tables().items():
    finished = [row for row in table if row.finished]
    if finished:
      same = _of_one_data_set(finished)
      ranks, spread = statistics.rank([row.sample for row in same])
      for row, rank in zip(same, ranks, strict=True):
        row.rank = rank
      for row in finished:
        if row.rank is None:
          row.apart = same[0].data
      if spread:
        board.spreads[key] = spread
      known = [row for row in finished if row.baseline]
      off = statistics.differ_from_rules(
          [(row.sample, row.baseline) for row in known], spread)
      for row, is_off in zip(known, off, strict=True):
        row.off_baseline = is_off
  return board


def _of_one_data_set(rows):
  """Returns the rows on the data of the baselines, or on the most common data.
  """
  data = collections.Counter(
      row.data for row in rows if not row.foreign) or collections.Counter(
          row.data for row in rows)
  return [row for row in rows if row.data == data.most_common(1)[0][0]]


def _measured(row, measured):
  """Returns whether baselines were measured on the data of a row.

  If so, the baselines in the records of its runs are ignored: a method may have
  changed since, and a record may be wrong.
  """
  return bool(measured and measured.methods
              and measured.fingerprint == row.data)


def _set_baseline(row, measured):
  """Sets the highest baseline of a row's data."""
  examples = row.sample.examples if row.sample else 0
  if measured and measured.fingerprint != row.data:
    row.foreign = measured.fingerprint
  if _measured(row, measured):
    baselines = [(_sample(method, examples), name)
                 for name, method in sorted(measured.methods.items())]
  else:
    baselines = [(Sample((accuracy,), examples), name) for run in row.runs
                 for name, accuracy in sorted(run.baselines.items())]
  # Among equal baselines, take one whose answers are known.
  row.baseline, row.baseline_name = max(
      baselines, default=(None, ''), key=lambda f: (
          round(f[0].accuracies[0], 9), f[0].correct is not None))


def _sample(method, examples):
  """Returns a baseline's score; `examples` is for records without answers."""
  if method.correct is None:
    return Sample((method.accuracy,), examples)
  return Sample((method.accuracy,), method.examples,
                bits.unpack(method.correct, method.examples)[None])


def _baselines(rows, measured):
  """Returns the measured baselines, and those in runs on other data."""
  baselines = []
  known = {}
  common = _of_one_data_set(rows)[0].data if rows else ''
  if measured:
    data = f'; data: {measured.origin}' if measured.origin else ''
    baselines = [Baseline(name, method.accuracy, method.how + data,
                          parts=method.parts)
                 for name, method in measured.methods.items()]
  for row in rows:
    if _measured(row, measured):
      continue
    for run in row.runs:
      for name, accuracy in run.baselines.items():
        values = known.setdefault((name, row.data), [])
        if all(abs(accuracy - v) > 1e-6 for v in values):
          values.append(accuracy)
          baselines.append(Baseline(
              name, accuracy, f'computed by the runs on data {row.data[:8]}',
              foreign=bool(measured and measured.methods)
              or row.data != common))
  return sorted(baselines, key=lambda f: (f.accuracy, f.name, f.how))
