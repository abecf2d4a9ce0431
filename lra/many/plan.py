"""Estimates the time of runs: `run_lra.py runs FILE --plan`.

The times come from the run itself if it was begun here, else from records
of similar runs, or from launches and bytes of the compiled step. Nothing is
started and no device is used.
"""

import collections
import json
import math
import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from lra.board.store import read_runs
from lra.core import files, machine, paths
from lra.core.errors import UserError
from lra.core.formats import NONE, aligned, count
from lra.many import choose
from lra.many.runs import Run, Unit
from lra.run.rundir import saved
from lra.schema import identity
from lra.schema.result import FINISHED, SEARCHED, Result

# Settings that the estimate ignores. Another dtype or kernel changes the time
# of a step, but the estimate is still useful.
_FREE = ('seed', 'dtype', 'model.kernel')
WORK = ('train', 'test')  # the parts of a run
# Devices of `launches.md`, by their names for --device; bytes that each moves
# in a second, and seconds between two launches. Both are assumed, not measured.
DEVICES = {'h200': 'NVIDIA H200'}
_BANDWIDTH, _LAUNCH = 3.3e12, 2e-6
_COUNTED = 'launches and bytes'  # a source
_HEAD = ('', 'steps left', 'minutes', 'fits', 'estimate from', 'run')


class Known(NamedTuple):
  """A record, and its config as `identity.experiment` returns it."""
  fields: dict[str, Any]
  result: Result


class Cost(NamedTuple):
  """Seconds of one step, one validation, the test, and compiling both steps."""
  step: float
  validation: float
  test: float
  compiling: float


class Estimate(NamedTuple):
  """The work that is left of one run, and its estimated time.

  Attributes:
    title: its config and seed.
    status: see `Run.status`; `recorded` if only a record is here.
    left, steps: updates to come, and updates of the whole run.
    seconds: seconds left, with validation, test and compiling; None if nothing
      is known.
    compiling: how many of these seconds are compiling.
    source: origin of the estimate.
  """
  title: str
  status: str
  left: int
  steps: int
  seconds: float | None
  compiling: float | None
  source: str


def estimator(runs: Sequence[Run], results_dir: pathlib.Path,
              recorded: Collection[str] = (), device: str | None = None
              ) -> Callable[..., Estimate]:
  """Returns a function that estimates runs; see `of`.

  It uses the records of the user and those that come with this program. The
  `device` is one of `DEVICES`, by default that of this machine.
  """
  here = DEVICES[device] if device else (
      machine.accelerator() or machine.cpu_name())  # without JAX
  tasks = {run.folder.parent.parent.name for run in runs}
  folders = {folder.resolve(): folder for folder in (
      results_dir / 'runs', paths.PACKAGED / 'runs')}
  records = [Known(identity.experiment(result.config), result)
             for folder in folders for _, result in read_runs(folder, tasks)[0]
             if result.finished and result.steps_per_s]
  return lambda run, work=WORK: of(run, records, here, recorded, work)


def of(run: Run, records: Sequence[Known], here: str,
       recorded: Collection[str] = (), work: Collection[str] = WORK
       ) -> Estimate:
  """Estimates the work that is left of a run, and its time.

  Args:
    run: the run.
    records: records of its task that have times.
    here: the device, as records name it.
    recorded: the `Run.repetition` of runs that have a record.
    work: the parts of the run to count, of `WORK`: all updates with their
      validations ('train'), or the test ('test').
  """
  fields, _ = json.loads(run.repetition)
  steps, every = fields['train.steps'], fields['train.eval_every']
  status = run.status()
  if status == 'new' and run.repetition in recorded:
    status = 'recorded'
  if status in (FINISHED if 'test' in work else SEARCHED):
    return Estimate(run.title, status, 0, steps, 0.0, 0.0, 'finished')
  step, memory = newest(run.folder)
  step = min(step, steps) if 'train' in work else steps
  cost, source = _by_records(fields, records, here, len(run.flags) == 2)
  own = _own(memory, every, cost)
  if own:
    cost, source = own, 'its own speed so far'
  if cost is None:
    return Estimate(run.title, status, steps - step, steps, None, None, NONE)
  validations = 0 if fields.get('train.include_val') or step == steps else (
      math.ceil(steps / every) - step // every)
  seconds = (cost.compiling + (steps - step) * cost.step
             + validations * cost.validation
             + (cost.test if 'test' in work else 0.0))
  return Estimate(run.title, status, steps - step, steps, seconds,
                  cost.compiling, source)


def newest(folder: pathlib.Path) -> tuple[int, dict]:
  """Returns the newest checkpoint's step, and its `run.counters.RunCounters`.

  These are 0 and {} if there are none or they cannot be read: the run itself
  will report that.
  """
  step = max(saved(folder), default=0)
  try:
    memory = files.read_json(
        folder / 'checkpoints' / 'last' / str(step) / 'memory' / 'metadata')
  except UserError:
    memory = None
  return step, memory if isinstance(memory, dict) else {}


def _own(memory, every, known):
  """Returns the cost of a run by its own progress, None if it made no step."""
  steps, seconds = memory.get('timed_steps'), memory.get('train_seconds')
  if not steps or not seconds:
    return None
  validation = known.validation if known else 0.0
  # Test splits of the arena have one to ten times the examples of validation.
  ratio = known.test / validation if validation else 1
  validations = memory.get('validated_step', 0) // every
  if validations and memory.get('eval_seconds'):
    validation = memory['eval_seconds'] / validations
  # The compile time in a checkpoint is the sum over all starts.
  compiled = memory.get('compile_seconds') or 0.0
  if known and known.compiling:
    compiled = min(compiled, known.compiling)
  return Cost(seconds / steps, validation, ratio * validation, compiled)


def _by_records(fields, records, here, default):
  """Returns (cost, source) by the most similar records, (None, '') without any.

  The best record is of the same model, on the same device or on one of its
  kind. Next come other models on these devices, last the same model on another
  kind of device. A count of launches and bytes, of `default` settings only,
  is preferred to a record of another model or device.
  """
  ranked = collections.defaultdict(list)
  for theirs, record in records:
    if theirs.get('task') != fields['task'] or (
        theirs.get('protocol') != fields['protocol']):
      continue
    other_model = _shape(theirs) != _shape(fields)
    if other_model and (
        theirs.get('model.name') == fields['model.name'] or
        _shape(theirs, model=False) != _shape(fields, model=False)):
      continue
    other_kind = record.device.split()[0] != here.split()[0]
    if not (other_model and other_kind):
      ranked[other_kind, other_model, record.device != here].append(record)
  rank = min(ranked, default=None)
  step = _counted(fields) if default and here in DEVICES.values() else None
  if step and (rank is None or any(rank)):
    return Cost(step, 0, 0, 0), f'{_COUNTED}, {1000 * step:.2f} ms a step'
  if rank is None:
    return None, ''
  # Of another model's records the median counts. Of the same model's records
  # the one counts whose run shared its device with the fewest other runs.
  found, (_, other_model, _) = ranked[rank], rank
  if other_model:
    found.sort(key=lambda record: _cost(record).step)
    record = found[(len(found) - 1) // 2]
  else:
    record = min(found, key=lambda record: record.runs_at_once)
  source = 'a record'
  if record.model != fields['model.name']:
    source += f' of {record.model}'
  if record.device != here:
    source += f' on another device, {record.device}'
  if record.runs_at_once > 1:
    source += f' beside {record.runs_at_once - 1} others'
  return _cost(record), source


def _counted(fields):
  """Returns seconds per step by `launches.md`, None if it lacks the step.

  Steps of Pathfinder have as many tokens as those of Image.
  """
  task = {'pathfinder': 'image'}.get(fields['task'], fields['task'])
  text = (paths.PACKAGED / 'launches.md').read_text()
  found = fields['protocol'] == 'nystrom' and re.search(
      rf'^\| {fields["model.name"]} \| {task} \| ([\d,]+) \| ([\d,.]+) \|',
      text, re.MULTILINE)
  if not found:
    return None
  launches, gigabytes = (float(n.replace(',', '')) for n in found.groups())
  return gigabytes * 1e9 / _BANDWIDTH + launches * _LAUNCH


def _shape(fields, model=True):
  """Returns the settings that decide how long a step takes."""
  return {name: value for name, value in fields.items()
          if name == 'train.batch_size' or not (
              name in _FREE or name.startswith(('train.', 'optim.')) or
              (name.startswith('model.') and not model))}


def _cost(record):
  """Returns the cost of a recorded run."""
  train = record.config['train']
  validations = math.ceil(record.steps / train['eval_every']) if (
      record.val) else 0
  examples = [getattr(scores, 'examples', None)
              for scores in (record.val, record.test)]
  ratio = examples[1] / examples[0] if all(examples) else 1.0
  whole = validations + ratio if record.test else validations
  validation = (record.eval_seconds or 0.0) / whole if whole else 0.0
  return Cost(1 / record.steps_per_s, validation, ratio * validation,
              record.compile_seconds or 0.0)


def of_units(units: Iterable[Unit], estimate: Callable[..., Estimate]
             ) -> list[Estimate]:
  """Returns an estimate of each run that a unit wants; see `choose.wanted`."""
  made = []
  for unit in units:
    chosen = choose.choice(unit) if unit.searched else None
    tested = unit.final(0) if chosen is None else chosen.runs
    made += [estimate(run, WORK if run in tested or not unit.searched else (
        'train',)) for run in choose.wanted(unit)]
  return made


def table(estimates: Sequence[Estimate],
          max_minutes: float | None = None) -> str:
  """Returns one line per run, and the total.

  Runs that end within `max_minutes` are marked `yes`, those that only begin
  within them `part`, others `no`, and `–` after a run without an estimate.
  """
  lines = [_HEAD, *(
      (e.status, f'{count(e.left)} of {count(e.steps)}', _minutes(e.seconds),
       fit, e.source, e.title)
      for e, fit in zip(estimates, _fits(estimates, max_minutes), strict=True))]
  if max_minutes is None:
    lines = [(*line[:3], *line[4:]) for line in lines]
  left = [e for e in estimates if e.seconds != 0]
  timed = [e.seconds for e in left if e.seconds is not None]
  total = (f'{_minutes(math.fsum(timed))} minutes for {len(timed)} of '
           f'{len(left)} runs that are not finished')
  unknown = len(left) - len(timed)
  return '\n'.join([
      *aligned(lines, right=range(1, len(lines[0]) - 2)),
      f'{total}; {unknown} have no estimate.' if unknown else f'{total}.',
      *[f'Estimates from {_COUNTED} are computed, never measured; they leave '
        'out compiling, validations and tests.'] * any(
            e.source.startswith(_COUNTED) for e in estimates)])


def _fits(estimates, max_minutes):
  """Returns the mark of each run in `table`."""
  marks, spent, certain = [], 0.0, True
  limit = math.inf if max_minutes is None else 60 * max_minutes
  for e in estimates:
    begins, certain = spent < limit, certain and e.seconds is not None
    spent += e.seconds or 0.0
    marks.append('no' if not begins else NONE if not certain else
                 'yes' if spent <= limit else 'part')
  return marks


def _minutes(seconds):
  return NONE if seconds is None else f'{seconds / 60:,.1f}'
