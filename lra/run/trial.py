"""Makes a few steps of a run and estimates what the whole run would take."""

import contextlib
import dataclasses
import pathlib
import tempfile
import time

import numpy as np

from lra.core import files, machine, signals
from lra.core.formats import gib, quantity
from lra.core.terminal import StopRequest, say
from lra.data import prepared
from lra.run import scoring
from lra.run.experiment import Experiment
from lra.run.sizes import is_cpu
from lra.run.trainer import Trainer

STEPS, BATCHES = 10, 2
# No step begins after so many seconds, but one is always made.
SECONDS = 60
# Above this share of waiting for a CPU, the machine counts as busy.
_BUSY = 0.2


@dataclasses.dataclass(frozen=True)
class Trial:
  """Measured times of a trial, and the sizes of the whole run.

  `tried` steps were made, of `steps`. A step's seconds have its batch, after
  compilation. `waiting` is the share of the time of waiting for a CPU.
  """
  tried: int
  steps: int
  step_seconds: float
  batch_seconds: float
  validations: int
  val_batches: int
  test_batches: int
  compile_seconds: float
  peak_memory_bytes: int
  device: str
  waiting: float = 0.0

  @property
  def parts(self) -> dict[str, tuple[str, float]]:
    """Returns part of the whole run -> (how often what, seconds)."""
    per_step, per_batch = map(quantity, (self.step_seconds, self.batch_seconds))
    validated = self.validations * self.val_batches
    return {
        'compilation': ('', self.compile_seconds),
        'training': (f'{self.steps:,} steps of {per_step} s',
                     self.steps * self.step_seconds),
        'validation': (f'{self.validations:,} x {self.val_batches:,} batches '
                       f'of {per_batch} s', validated * self.batch_seconds),
        'test': (f'{self.test_batches:,} batches of {per_batch} s',
                 self.test_batches * self.batch_seconds)}

  @property
  def seconds(self) -> float:
    return sum(seconds for _, seconds in self.parts.values())

  def __str__(self) -> str:
    lines = [f'the whole run would take about {_time(self.seconds)} and '
             f'{gib(self.peak_memory_bytes)} GiB on {self.device}:']
    lines += [f'  {name:12}{_time(seconds):>10}  {how}'.rstrip()
              for name, (how, seconds) in self.parts.items()]
    if self.waiting > _BUSY:
      lines.append(
          'The machine is busy: the trial waited for a CPU during '
          f'{self.waiting:.0%} of its time. Alone, the run is faster.')
    return '\n'.join(lines)


def measure(experiment: Experiment) -> Trial:
  """Makes `STEPS` steps and validates on `BATCHES` batches; keeps nothing.

  The test split is not read, and the run directory is not touched. The
  validation batches are evenly spaced, because a CPU evaluates short examples
  first.
  """
  t = experiment.config.train
  place = files.beside(pathlib.Path(tempfile.gettempdir(), 'trial'))
  files.remove_leftovers(place.parent)
  with (tempfile.TemporaryDirectory(prefix=place.name) as folder,
        contextlib.closing(Trainer(dataclasses.replace(
            experiment, folder=pathlib.Path(folder)))) as run):
    say('compiling the steps ...')
    state = run.restore()
    run.compile()
    before = np.array(machine.cpu_times())
    with signals.interrupting():
      state, step_seconds = _train(run, state, min(STEPS, t.steps))
      val, test = (run.data.splits[name] for name in ('val', 'test'))
      size = run.program.sizes.eval_batch
      batch_seconds = _validate(run, state, size)
    ran, waited = np.maximum(machine.cpu_times() - before, 0)
    return Trial(
        run.step, t.steps, step_seconds, batch_seconds,
        -(-t.steps // t.eval_every) if len(val) else 0,
        -(-len(val) // size), -(-len(test) // size),
        run.counters.compile_seconds, machine.peak_memory(),
        machine.device_name(), waited / max(ran + waited, 1e-9))


def _train(run, state, most):
  """Makes up to `most` steps; returns (state, seconds per step).

  The first step counts only if there is no other.
  """
  start = begun = time.perf_counter()
  while run.step < most and (
      not run.step or time.perf_counter() - start < SECONDS):
    state = run.update(state, run.next_batch())
    if run.step == 1:
      state, text = run.log(state)
      say(f'step 1: {text}')
      first, begun = time.perf_counter() - start, time.perf_counter()
  if run.step == 1:
    return state, first
  state, text = run.log(state)
  say(f'step {run.step}: {text}')
  return state, (time.perf_counter() - begun) / (run.step - 1)


def _validate(run, state, size):
  splits = run.data.splits
  split = splits['val'] if len(splits['val']) else splits['train']
  order = run.program.order(split)
  starts = range(0, len(order), size)
  some = [starts[(2 * i + 1) * len(starts) // (2 * BATCHES)]
          for i in range(min(BATCHES, len(starts)))]
  few = prepared.chosen(
      split, np.concatenate([order[i:i + size] for i in some]))
  run.data = dataclasses.replace(run.data, splits={**splits, 'val': few})
  stop = StopRequest(None)
  if not is_cpu(run.program.mesh):  # on a GPU the first one takes longer
    scoring.validate(run, state, stop)
  before = run.counters.eval_seconds
  scoring.validate(run, state, stop)
  return (run.counters.eval_seconds - before) / len(some)


def _time(seconds):
  for name, unit in (('h', 3600), ('min', 60)):
    if seconds >= unit:
      return f'{quantity(seconds / unit)} {name}'
  return f'{quantity(seconds)} s'
