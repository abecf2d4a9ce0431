"""Turns result records into leaderboard rows.

A row is every seed of one task, model, protocol, configuration and data set.
Two configurations of a model are two rows, told apart by the fields in which
they differ.
"""

import collections
import dataclasses
import json
import math
import pathlib

from lra import identity, tasks
from lra.errors import UserError
from lra.report import result
from lra.report.catalogue import REFERENCE

_SIZES = ('num_layers', 'width', 'mlp_width')


@dataclasses.dataclass(frozen=True)
class Floor:
  """What a trivial or linear method reaches: accuracy is a fraction."""
  name: str
  accuracy: float
  how: str


@dataclasses.dataclass
class Row:
  """The seeds of one configuration.

  Attributes:
    runs: result records, by seed.
    variant: the config fields that tell it from the model's other rows, or ''.
    floor: accuracy of the highest floor of the row's data, or None.
    foreign: fingerprint of the task's floors where the row's differs, or ''.
    ratio: parameters over the reference Transformer's, or None.
    heavy: whether that ratio is above 1.1.
  """
  runs: list[dict]
  variant: str = ''
  floor: float | None = None
  foreign: str = ''
  ratio: float | None = None
  heavy: bool = False

  # What is the same in every run of the row.
  task = property(lambda self: self.runs[0]['task'])
  model = property(lambda self: self.runs[0]['model'])
  protocol = property(lambda self: self.runs[0]['protocol'])
  data = property(lambda self: self.runs[0]['data_fingerprint'])
  config = property(lambda self: self.runs[0]['config'])

  @property
  def finished(self) -> list[dict]:
    return [r for r in self.runs if r['status'] == 'ok']

  @property
  def accuracies(self) -> list[float]:
    return [r['test']['accuracy'] for r in self.finished]

  @property
  def mean(self) -> float | None:
    return mean(self.accuracies)

  @property
  def best(self) -> float | None:
    return max(self.accuracies, default=None)

  @property
  def params(self) -> int | None:
    return self.largest('num_params')

  def largest(self, field: str) -> int | None:
    return max((r[field] for r in self.runs if r[field] is not None),
               default=None)

  def distinct(self, field: str) -> list[str]:
    return sorted({r[field] for r in self.runs if r[field]})

  @property
  def devices(self) -> list[str]:
    return sorted({device(r) for r in self.runs})

  def setting(self, section: str, name: str) -> str:
    value = (self.config.get(section) or {}).get(name)
    return '' if value is None else str(value)

  def per_device(self, field: str) -> list[float | None]:
    """Mean of `field` on each of `devices`."""
    return [mean([r[field] for r in self.runs
                  if device(r) == name and r[field] is not None])
            for name in self.devices]


@dataclasses.dataclass
class TaskBoard:
  """What is known of one task: its floors, lowest first, and its rows."""
  task: tasks.Task
  floors: list[Floor]
  rows: list[Row]

  def protocols(self) -> dict[str, list[Row]]:
    by_protocol = {}
    for row in sorted(self.rows, key=lambda r: r.protocol):
      by_protocol.setdefault(row.protocol, []).append(row)
    return by_protocol


def device(run: dict) -> str:
  """What a run was made on, with the number of devices where several."""
  number = run.get('num_devices') or 1
  return run['device'] if number == 1 else f'{number} x {run["device"]}'


def mean(values) -> float | None:
  return math.fsum(values) / len(values) if values else None


def load(runs_dir: pathlib.Path, floors_dir: pathlib.Path) -> list[TaskBoard]:
  """Returns a TaskBoard for each task with records, in the order of TASKS.

  Rows are by mean test accuracy, highest first, then by name.

  Raises:
    UserError: a record is not sound, or two records contradict each other.
  """
  runs = {path: result.read_run(path) for path in _records(runs_dir)}
  floors = {path.stem: result.read_floors(path)
            for path in _records(floors_dir)}
  _check_totals(runs)
  groups = _group(runs)
  boards = []
  for task in tasks.TASKS.values():
    mine = [row for row in groups if row.task == task.name]
    if mine or task.name in floors:
      boards.append(_board(task, mine, floors.get(task.name)))
  return boards


def _records(directory):
  found = pathlib.Path(directory).rglob('*.json')
  return sorted((p for p in found if not p.name.startswith('.')),
                key=lambda p: p.as_posix())


def _check_totals(runs):
  """Every run on the same data must have been tested on as many examples."""
  seen = {}
  for path, run in runs.items():
    if run['test'] is None:
      continue
    total = examples(run)
    key = run['task'], run['data_fingerprint']
    other, expected = seen.setdefault(key, (path, total))
    if total != expected:
      raise UserError(
          f'{path} counts {total} test examples but {other} {expected} on the '
          'same data: run again or delete the one that missed some.')


def examples(run: dict) -> int:
  """Number of test examples in the confusion matrix."""
  return sum(map(sum, run['test']['confusion']))


def _group(runs):
  groups = collections.defaultdict(dict)
  for path, run in runs.items():
    key = (run['task'], run['model'], run['protocol'], run['data_fingerprint'],
           json.dumps(_identity(run), sort_keys=True))
    seeds = groups[key]
    if run['seed'] in seeds:
      raise UserError(
          f'{path} and {seeds[run["seed"]][0]} are the same run (same config '
          'and seed): delete one of them.')
    seeds[run['seed']] = path, run
  rows = [Row([run for _, (_, run) in sorted(seeds.items())])
          for _, seeds in sorted(groups.items())]
  _name_variants(rows)
  return rows


def _identity(run):
  """The config as {dotted field: value}, without MACHINE_FIELDS."""
  return {name: value for name, value in identity.flatten(run['config']).items()
          if name not in identity.MACHINE_FIELDS}


def _name_variants(rows):
  families = collections.defaultdict(list)
  for row in rows:
    families[row.task, row.model, row.protocol].append(row)
  for family in families.values():
    fields = [_described(row) for row in family]
    differing = sorted(name for name in set().union(*fields)
                       if len({f.get(name, 'unset') for f in fields}) > 1)
    for row, described in zip(family, fields, strict=True):
      row.variant = ', '.join(
          f'{name}={described.get(name, "unset")}' for name in differing)


def _described(row):
  flat = {name: value if isinstance(value, str) else json.dumps(value)
          for name, value in _identity(row.runs[0]).items()}
  return flat | {'data': row.data[:8]}


def _board(task, rows, measured):
  _compare_with_floors(rows, measured)
  for protocol in {row.protocol for row in rows}:
    _compare_with_transformer([r for r in rows if r.protocol == protocol])
  rows.sort(key=lambda r: (r.mean is None, -(r.mean or 0), r.model, r.variant,
                           r.protocol))
  return TaskBoard(task, _floors(rows, measured), rows)


def _compare_with_floors(rows, measured):
  for row in rows:
    floors = [f for run in row.runs for f in run['floors'].values()]
    if measured and measured['fingerprint'] != row.data:
      row.foreign = measured['fingerprint']
    elif measured:
      floors += [f['accuracy'] for f in measured['floors'].values()]
    row.floor = max(floors, default=None)


def _floors(rows, measured):
  """The measured floors, and those which only the runs know."""
  floors = []
  known = {}
  if measured:
    for name, floor in measured['floors'].items():
      floors.append(Floor(name, floor['accuracy'], floor['how']))
      known[name, measured['fingerprint']] = [floor['accuracy']]
  for row in rows:
    for run in row.runs:
      for name, accuracy in run['floors'].items():
        values = known.setdefault((name, row.data), [])
        if all(abs(accuracy - v) > 1e-6 for v in values):
          values.append(accuracy)
          floors.append(Floor(
              name, accuracy, f'computed by the runs on data {row.data[:8]}'))
  return sorted(floors, key=lambda f: (f.accuracy, f.name, f.how))


def _compare_with_transformer(rows):
  reference = _reference(rows)
  for row in rows:
    if reference and row.params:
      row.ratio = row.params / reference
      row.heavy = 10 * row.params > 11 * reference


def _reference(rows):
  """Parameters of the Transformer whose encoder most of the rows share.

  A protocol may have been tried with several encoder sizes; the usual one
  sets the budget. Ties: more finished seeds, then fewer parameters.
  """
  def sizes(row):
    return [row.setting('encoder', name) for name in _SIZES]
  candidates = [r for r in rows if r.model == REFERENCE and r.params]
  if not candidates:
    return None
  usual = max(candidates, key=lambda c: (
      sum(sizes(r) == sizes(c) for r in rows), len(c.finished), -c.params))
  return usual.params
