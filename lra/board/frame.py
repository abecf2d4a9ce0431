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
from lra.board.rows import (
  Row,
  TableKey,
  labels,
  listed,
  mean,
  setting_text,
  shown,
)
from lra.board.statistics import Sample
from lra.core import bits, tasks
from lra.schema import fields, identity

_SIZES = ('num_layers', 'width', 'mlp_width')


class Baseline(NamedTuple):
  """The score of a trivial or linear method.

  It is `foreign` if its data differ from those of the measured baselines, or of
  most rows if no baseline was measured. `parts` is its accuracy by kind of
  example, see `scores.ClassificationScores`.
  """
  name: str
  accuracy: float
  how: str
  foreign: bool = False
  parts: Mapping = {}


@dataclasses.dataclass(frozen=True)
class Board:
  """The rows and baselines of one task, the lowest baseline first.

  A line of `rows` is a `Row`, the highest accuracy first, then by name. The
  columns are those of results.csv (see `data`), but `table` is a `TableKey` and
  `variant` has no changes of the protocol; and

    row, data, digits: the `Row`, and its properties;
    name: the model, what sets it apart from the protocol, and in brackets its
      variant;
    above: its accuracy minus that of the baseline;
    heavy: whether it has more than 110% of the Transformer's parameters, which
      is the limit of the arena;
    place, like: its place in its table, from 1, and those of the rows that do
      not differ significantly;
    foreign, apart: fingerprint of the data of the baselines, or of the ranked
      rows, if its own data are others; else ''.

  `spreads` has the tables with enough seeds. The page's notes are about the
  `usual` data, those of the committed baselines.
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
  """Returns a `Board` for each task with records, and the records left out.

  If `baselines_dir` has none for a task, those in `usual_dir` apply to rows on
  exactly their data.
  """
  runs, left_out = store.read_classifiers(runs_dir)
  records, invalid = store.read_baselines(baselines_dir)
  measured = {record.task: record for record in records}
  usual = measured if usual_dir in (None, baselines_dir) else {
      record.task: record for record in store.read_baselines(usual_dir)[0]}
  rows, budgets = _rows(runs), inputs.budgets()
  boards = []
  own = [tasks.get(name) for name in sorted({*rows.task} - {*tasks.TASKS})]
  for task in [*tasks.TASKS.values(), *(task for task in own if task.own)]:
    mine = rows[rows.task == task.name]
    common = usual.get(task.name)
    is_usual = bool(common) and (mine.data == common.fingerprint).any()
    known = measured.get(task.name) or (common if is_usual else None)
    if known or len(mine):
      compared, spreads = _compared(mine, known, budgets)
      boards.append(Board(
          task, _baselines(compared, known), compared, spreads, is_usual))
  return boards, left_out + invalid


def chosen(rows: Iterable) -> Any | None:
  """Returns the row of an overview, by `tables.lines`, None for no rows.

  Test scores do not decide.
  """
  return max(rows, default=None, key=lambda row: (
      not (row.foreign or row.apart), row.seeds, row.steps,
      row.val_accuracy or 0.0, row.variant))


def _rows(runs):
  """Returns a frame of the seeds of each configuration: pairs (file, run)."""
  if not runs:
    return pandas.DataFrame(columns=['task', 'table', 'accuracy', 'data'])
  seeds = collections.defaultdict(list)
  for file, run in sorted(runs, key=lambda pair: pair[1].seed):
    seeds[store.key(run)].append((run, file))
  rows = pandas.DataFrame(
      [_own(Row(*zip(*seeds[key], strict=True))) for key in sorted(seeds)],
      dtype=object)
  rows = rows.join(pandas.concat([
      _variants(members)
      for _, members in rows.groupby(['task', 'model', 'table'])]))
  order = sorted(rows.index, key=lambda i: (
      rows.accuracy[i] is None, -(rows.accuracy[i] or 0), rows.name[i],
      rows.protocol[i]))
  return rows.loc[order]


def _own(row):
  low, high, over_seeds = row.interval or (None, None, None)
  examples = [getattr(run.test, 'examples', None) for run in row.finished]
  return {name: getattr(row, name) for name in (
      'task', 'table', 'protocol', 'model', 'state_size', 'data', 'digits')} | {
      'row': row, 'family': catalogue.family(row.model), 'accuracy': row.mean,
      'low': low, 'high': high, 'interval_over': row.interval and (
          'seeds' if over_seeds else 'examples'),
      'deviation': row.sample and statistics.deviation(row.sample),
      'seeds': len(row.finished), 'runs': len(row.runs),
      'val_accuracy': row.average('val', 'accuracy'),
      'test_loss': row.average('test', 'loss'),
      'test_examples': examples[0] if examples else None,
      'steps': row.largest('steps'), 'parameters': row.largest('num_params'),
      'train_seconds': mean(row.values('train_seconds')),
      'device': ' / '.join(dict.fromkeys(row.devices))}


def _variants(rows):
  """Returns the names of a model's rows, by the settings that part them."""
  settings = [collections.defaultdict(lambda: 'unset', {
      name: shown(value) for name, value in (
          fields.added(row.model) | identity.experiment(row.config)
          | {'data': row.data[:8]}).items()}) for row in rows.row]
  # Changes from the protocol have a column of their own.
  names = {name for one in settings for name in one} - {
      name for row in rows.row for name in row.changes}
  differing = sorted(name for name in names
                     if len({one[name] for one in settings}) > 1)
  variants = [listed(f'{setting_text(name)}={setting_text(one[name])}'
                     for name in differing) for one in settings]
  return pandas.DataFrame({'variant': variants, 'name': [
      row.model + (label and f', {label}') + (variant and f' ({variant})')
      for row, label, variant in zip(
          rows.row, labels(list(rows.row)), variants, strict=True)]},
      rows.index, dtype=object)


def _compared(rows, measured, budgets):
  """Adds the columns that depend on other rows; also returns the spreads."""
  if rows.empty:
    return rows, {}
  rules, names = zip(*(_rule(row, measured) for row in rows.row), strict=True)
  rows = rows.assign(
      rule=pandas.Series(rules, rows.index, dtype=object), baseline_name=names,
      baseline=[rule and rule.accuracies[0] for rule in rules],
      foreign=[measured.fingerprint if measured and
               measured.fingerprint != data else '' for data in rows.data])
  ranked = {key: _ranked(members) for key, members in rows.groupby('table')}
  rows = rows.join(pandas.concat([made for made, _ in ranked.values()])).join(
      pandas.concat([_relative(members, budgets.get((name, rows.task.iloc[0])))
                     for name, members in rows.groupby('protocol')]))
  rows['above'] = rows.accuracy - rows.baseline
  rows['apart'] = [data if isinstance(data, str) else '' for data in rows.apart]
  return rows.astype(object).where(rows.notna(), None), {
      key: spread for key, (_, spread) in ranked.items() if spread}


def _ranked(rows):
  """Returns columns of the finished rows of a table, and its spread or None."""
  rows = rows[rows.accuracy.notna()]
  same = _of_one_data_set(rows)
  ranks, spread = statistics.rank([row.sample for row in same.row])
  made = pandas.DataFrame(
      [(rank.first, rank.last, rank.place, rank.like) for rank in ranks],
      same.index, ['rank', 'last_rank', 'place', 'like'], dtype=object)
  known = rows[rows.rule.notna()]
  differs = statistics.differ([
      statistics.p_value(row.sample, rule, spread)
      for row, rule in zip(known.row, known.rule, strict=True)])
  return made.reindex(rows.index).assign(
      apart=['' if i in same.index else same.data.iloc[0] for i in rows.index],
      differs_from_baseline=pandas.Series(
          differs, known.index, dtype=object)), spread


def _of_one_data_set(rows):
  """Returns the rows on the data of the baselines, or on the most common data.
  """
  data = collections.Counter(
      rows.data[rows.foreign == '']) or collections.Counter(rows.data)
  return rows[rows.data == max(data, key=data.get, default='')]


def _relative(rows, counted):
  """Compares the parameters of a protocol's rows with those of the Transformer.

  A protocol may have been tried with Transformers of several sizes; the size
  that most rows have sets the budget. In a tie, more finished seeds decide,
  then fewer parameters. `counted` is the budget without such a row, or None.
  """
  def size(row):
    return [row.setting('encoder', name) for name in _SIZES]
  peers = [row for row in rows.row if not row.changes] or list(rows.row)
  usual = max((
      (sum(size(row) == size(own) for row in peers), len(own.finished), -params)
      for own in peers if own.model == catalogue.REFERENCE
      and (params := own.largest('num_params'))), default=None)
  reference = -usual[-1] if usual else counted
  known = [n if reference else None for n in rows.parameters]
  return pandas.DataFrame({
      'relative_parameters': [n / reference if n else None for n in known],
      'heavy': [bool(n and 10 * n > 11 * reference) for n in known]},
      rows.index, dtype=object)


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
    known = [(Sample((method.accuracy,), examples) if method.correct is None
              else Sample((method.accuracy,), method.examples, bits.unpack(
                  method.correct, method.examples)[None]), name)
             for name, method in sorted(measured.methods.items())]
  else:
    known = [(Sample((accuracy,), examples), name) for run in row.runs
             for name, accuracy in sorted(run.baselines.items())]
  # Among equal baselines, take one whose answers are known.
  return max(known, default=(None, ''), key=lambda found: (
      round(found[0].accuracies[0], 9), found[0].correct is not None))


def _baselines(rows, measured):
  """Returns the measured baselines, and those in runs on other data."""
  baselines, known = [], collections.defaultdict(list)
  common = set(_of_one_data_set(rows).data) if len(rows) else ()
  if measured:
    data = f'; data: {measured.origin}' if measured.origin else ''
    baselines = [Baseline(name, method.accuracy, method.how + data,
                          parts=method.parts)
                 for name, method in measured.methods.items()]
  for row in rows.get('row', ()):
    if _measured(row.data, measured):
      continue
    for name, accuracy in (
        claim for run in row.runs for claim in run.baselines.items()):
      values = known[name, row.data]
      if all(abs(accuracy - v) > 1e-6 for v in values):
        values.append(accuracy)
        baselines.append(Baseline(
            name, accuracy, f'computed by the runs on data {row.data[:8]}',
            bool(measured and measured.methods) or row.data not in common))
  return sorted(baselines, key=lambda b: (b.accuracy, b.name, b.how))
