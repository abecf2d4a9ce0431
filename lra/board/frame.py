"""Records as one pandas frame: a line for each row, compared with the others.

Every column holds plain Python objects, and None if a value is missing, so a
count stays an integer. Only runs of classifiers are here: others have no
accuracy.
"""

import collections
import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas

from lra.board import catalogue, inputs, statistics, store
from lra.board.rows import LETTERS, Row, TableKey, listed, mean, shown
from lra.board.statistics import Sample
from lra.core import bits, tasks
from lra.core.formats import plain
from lra.schema import fields, identity

# Family of a model that has no file in lra/models.
OTHER = 'other'
_SIZES = ('num_layers', 'width', 'mlp_width')


class Baseline(NamedTuple):
  """The score of a trivial or linear method.

  Attributes:
    accuracy: a fraction.
    how: how the method works, and on which data.
    foreign: whether its data differ from the data of the measured baselines, or
      of most rows if no baseline was measured.
    parts: its accuracy by kind of example, see `scores.ClassificationScores`.
  """
  name: str
  accuracy: float
  how: str
  foreign: bool = False
  parts: Mapping = {}


@dataclasses.dataclass(frozen=True)
class Board:
  """The rows and baselines of one task.

  Attributes:
    baselines: the lowest first.
    rows: a line for each `Row`, the highest accuracy first, then by name. The
      columns are those of results.csv (see `data`), but `table` is a
      `TableKey` and `variant` has no changes of the protocol, and
        row, data, digits: the `Row`, and its properties;
        name: the model, with its variant in brackets;
        above: its accuracy minus that of the baseline;
        heavy: whether it has more than 110% of the Transformer's parameters,
          which is the limit of the arena;
        place: its place by accuracy in its table, from 1;
        like: the places of the rows that do not differ significantly;
        foreign, apart: fingerprint of the data of the baselines, or of the
          ranked rows, if its own data are others; else ''.
    spreads: spread of seeds in each of its tables with enough seeds.
    usual: whether any row is on the data of the committed baselines. The
      page's notes are about these data.
  """
  task: tasks.Task
  baselines: Sequence[Baseline] = ()
  rows: pandas.DataFrame = dataclasses.field(default_factory=lambda: _rows([]))
  spreads: Mapping[TableKey, statistics.Spread] = dataclasses.field(
      default_factory=dict)
  usual: bool = False

  @property
  def finished(self) -> pandas.DataFrame:
    """The rows with at least one finished run."""
    return self.rows[self.rows.accuracy.notna()]

  @property
  def highest(self) -> float | None:
    """Accuracy of the highest baseline, of the measured ones if any."""
    return max(((not b.foreign, b.accuracy) for b in self.baselines),
               default=(None, None))[1]

  def tables(self) -> dict[TableKey, pandas.DataFrame]:
    return dict(iter(self.rows.groupby('table')))


def load(runs_dir: pathlib.Path, baselines_dir: pathlib.Path,
         usual_dir: pathlib.Path | None = None
         ) -> tuple[list[Board], list[store.LeftOut]]:
  """Makes a `Board` for each task with records, in the order of TASKS.

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
  records, invalid = store.read_baselines(baselines_dir)
  measured = {record.task: record for record in records}
  usual = measured if usual_dir in (None, baselines_dir) else {
      record.task: record for record in store.read_baselines(usual_dir)[0]}
  rows, budgets = _rows(runs), inputs.budgets()
  any_full = any(tasks.get(name).group == 'full' for name in rows.task)
  boards = []
  for task in tasks.TASKS.values():
    mine = rows[rows.task == task.name]
    common = usual.get(task.name)
    is_usual = bool(common) and (mine.data == common.fingerprint).any()
    waits = any_full and mine.empty and task.group == 'full'
    known = measured.get(task.name) or (
        common if is_usual or waits else None)
    if known or len(mine):
      compared, spreads = _compared(mine, known, budgets)
      boards.append(Board(
          task, _baselines(compared, known), compared, spreads, is_usual))
  return boards, left_out + invalid


def chosen(rows: Iterable) -> Any | None:
  """Returns the row of an overview; test scores do not decide.

  Args:
    rows: lines of `Board.rows`, see `tables.lines`.
  """
  return max(rows, default=None, key=lambda row: (
      not (row.foreign or row.apart), row.seeds, row.steps,
      row.val_accuracy or 0.0, row.variant))


def _rows(runs):
  """Returns a frame of the seeds of each configuration; sorted by accuracy.

  Args:
    runs: pairs (file, result).
  """
  if not runs:
    return pandas.DataFrame(columns=['task', 'table', 'accuracy', 'data'])
  seeds = collections.defaultdict(dict)
  for name, run in runs:
    seeds[store.key(run)][run.seed] = run, name
  rows = [Row(*zip(*(by_seed[seed] for seed in sorted(by_seed)), strict=True))
          for _, by_seed in sorted(seeds.items())]
  families = {entry.name: entry.family for entry in catalogue.read()}
  variants = _variants(rows)
  lines = [{
      'row': row, 'task': row.task, 'table': row.table,
      'protocol': row.protocol, 'model': row.model, 'variant': variant,
      'name': f'{row.model} ({variant})' if variant else row.model,
      'family': families.get(row.model, OTHER), 'accuracy': row.mean,
      'low': row.interval and row.interval.low,
      'high': row.interval and row.interval.high,
      'interval_over': row.interval and (
          'seeds' if row.interval.over_seeds else 'examples'),
      'deviation': row.sample and statistics.deviation(row.sample),
      'seeds': len(row.finished), 'runs': len(row.runs),
      'val_accuracy': row.average('val', 'accuracy'),
      'test_loss': row.average('test', 'loss'),
      'test_examples': next(
          (getattr(run.test, 'examples', None) for run in row.finished), None),
      'steps': row.largest('steps'), 'parameters': row.largest('num_params'),
      'state_size': row.state_size,
      'train_seconds': mean(row.values('train_seconds')),
      'device': ' / '.join(dict.fromkeys(row.devices)),
      'data': row.data, 'digits': row.digits,
  } for row, variant in zip(rows, variants, strict=True)]
  lines.sort(key=lambda line: (
      line['accuracy'] is None, -(line['accuracy'] or 0), line['model'],
      line['variant'], line['protocol']))
  return pandas.DataFrame(lines, dtype=object)


def _variants(rows):
  """Returns for each row the settings that part it from its model's others."""
  alike = collections.defaultdict(list)
  for i, row in enumerate(rows):
    alike[row.task, row.model, row.table].append(i)
  variants = [''] * len(rows)
  for members in alike.values():
    settings = {i: _settings(rows[i]) for i in members}
    # Changes from the protocol have a column of their own.
    changed = {name for i in members for name in rows[i].changes}
    differing = sorted(
        name for name in set().union(*settings.values()) - changed
        if len({s.get(name, 'unset') for s in settings.values()}) > 1)
    for i, mine in settings.items():
      variants[i] = listed(
          f'{plain(name, LETTERS)}={plain(mine.get(name, "unset"), LETTERS)}'
          for name in differing)
  return variants


def _settings(row):
  """Returns {field: its value as text} of fields that can differ."""
  values = fields.added(row.model) | identity.experiment(row.config)
  return {**{name: shown(value) for name, value in values.items()},
          'data': row.data[:8]}


def _compared(rows, measured, budgets):
  """Adds the columns that depend on baselines and on other rows of the task.

  Returns:
    The rows, and the spread of each table that has one.
  """
  if rows.empty:
    return rows, {}
  rules = [_rule(row, measured) for row in rows.row]
  rows = rows.assign(
      rule=[rule for rule, _ in rules],
      baseline=[rule and rule.accuracies[0] for rule, _ in rules],
      baseline_name=[name for _, name in rules],
      foreign=[measured.fingerprint if measured and
               measured.fingerprint != data else '' for data in rows.data])
  made, spreads = [], {}
  for key, members in rows.groupby('table'):
    ranked, spread = _ranked(members)
    made.append(ranked)
    if spread:
      spreads[key] = spread
  task = rows.task.iloc[0]
  rows = rows.join(pandas.concat(made)).join(pandas.concat([
      _relative(members, budgets.get((protocol, task)))
      for protocol, members in rows.groupby('protocol')]))
  rows['above'] = rows.accuracy - rows.baseline
  rows = rows.astype(object).where(rows.notna(), None)
  rows['apart'] = rows.apart.map(lambda data: data or '')
  return rows, spreads


def _ranked(rows):
  """Returns columns of the finished rows of a table, and its spread or None."""
  finished = rows[rows.accuracy.notna()]
  if finished.empty:
    return finished[[]], None
  same = _of_one_data_set(finished)
  ranks, spread = statistics.rank([row.sample for row in same.row])
  made = pandas.DataFrame(
      [(rank.first, rank.last, rank.place, rank.like) for rank in ranks],
      same.index, ['rank', 'last_rank', 'place', 'like'], dtype=object)
  others = finished.index.difference(same.index)
  known = finished[finished.rule.notna()]
  differs = statistics.differ([
      statistics.p_value(row.sample, rule, spread)
      for row, rule in zip(known.row, known.rule, strict=True)])
  return made.reindex(finished.index).assign(
      apart=pandas.Series(same.data.iloc[0], others, dtype=object),
      differs_from_baseline=pandas.Series(
          differs, known.index, dtype=object)), spread


def _of_one_data_set(rows):
  """Returns the rows on the data of the baselines, or on the most common data.
  """
  data = collections.Counter(
      rows.data[rows.foreign == '']) or collections.Counter(rows.data)
  return rows[rows.data == data.most_common(1)[0][0]]


def _relative(rows, counted):
  """Compares the parameters of rows with those of the Transformer.

  The arena allows 10% more. A protocol may have been tried with Transformers of
  several sizes; the size that most rows have sets the budget. In a tie, more
  finished seeds decide, then fewer parameters.

  Args:
    rows: rows of one task and protocol.
    counted: the Transformer's parameters, used if it has no row; None if
      unknown.
  """
  def size(row):
    return [row.setting('encoder', name) for name in _SIZES]
  peers = [row for row in rows.row if not row.changes] or list(rows.row)
  usual = max((row for row in peers if row.model == catalogue.REFERENCE
               and row.largest('num_params')), default=None, key=lambda own: (
      sum(size(row) == size(own) for row in peers), len(own.finished),
      -own.largest('num_params')))
  reference = usual.largest('num_params') if usual else counted
  return pandas.DataFrame({
      'relative_parameters': [
          n / reference if reference and n else None for n in rows.parameters],
      'heavy': [bool(reference and n and 10 * n > 11 * reference)
                for n in rows.parameters]}, rows.index, dtype=object)


def _measured(data, measured):
  """Returns whether baselines were measured on these data.

  If so, the baselines in the records of runs are ignored: a method may have
  changed since, and a record may be wrong.
  """
  return bool(measured and measured.methods and measured.fingerprint == data)


def _rule(row, measured):
  """Returns the highest baseline of a row's data, or None, and its name."""
  examples = row.sample.examples if row.sample else 0
  if _measured(row.data, measured):
    known = [(_sample(method, examples), name)
             for name, method in sorted(measured.methods.items())]
  else:
    known = [(Sample((accuracy,), examples), name) for run in row.runs
             for name, accuracy in sorted(run.baselines.items())]
  # Among equal baselines, take one whose answers are known.
  return max(known, default=(None, ''), key=lambda found: (
      round(found[0].accuracies[0], 9), found[0].correct is not None))


def _sample(method, examples):
  """Returns a baseline's score; `examples` is for records without answers."""
  if method.correct is None:
    return Sample((method.accuracy,), examples)
  return Sample((method.accuracy,), method.examples,
                bits.unpack(method.correct, method.examples)[None])


def _baselines(rows, measured):
  """Returns the measured baselines, and those in runs on other data."""
  baselines, known = [], collections.defaultdict(list)
  common = _of_one_data_set(rows).data.iloc[0] if len(rows) else ''
  if measured:
    data = f'; data: {measured.origin}' if measured.origin else ''
    baselines = [Baseline(name, method.accuracy, method.how + data,
                          parts=method.parts)
                 for name, method in measured.methods.items()]
  for row in rows.get('row', ()):
    for run in () if _measured(row.data, measured) else row.runs:
      for name, accuracy in run.baselines.items():
        values = known[name, row.data]
        if all(abs(accuracy - v) > 1e-6 for v in values):
          values.append(accuracy)
          baselines.append(Baseline(
              name, accuracy, f'computed by the runs on data {row.data[:8]}',
              foreign=bool(measured and measured.methods)
              or row.data != common))
  return sorted(baselines, key=lambda b: (b.accuracy, b.name, b.how))
