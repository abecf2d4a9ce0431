"""Makes a few steps of a run and estimates what the whole run would take.

If a step takes many seconds on a CPU, the trial computes smaller batches, and
multiplies the measured times.
"""

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
from lra.run import check, program, scoring
from lra.run.experiment import Experiment
from lra.run.sizes import is_cpu
from lra.run.trainer import Trainer

STEPS, BATCHES = 10, 2
# No step begins so many seconds after the trial, but one is always made.
SECONDS = 30
# A guess of the operations of a core in a second, by which a step of a trial
# takes at most so many seconds.
_SPEED, _LONGEST = 3e10, 4
# Above this share of waiting for a CPU, the machine counts as busy.
_BUSY = 0.2


@dataclasses.dataclass(frozen=True)
class Trial:
  """Measured times of a trial, and the sizes of the whole run.

  `tried` steps were made, of `steps`. A step's seconds have its batch, after
  compilation. `smaller` describes smaller batches, if the trial computed such.
  `waiting` is the share of the time of waiting for a CPU.
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
  smaller: str = ''

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
    if self.smaller:
      lines.append(f'A step is long, so the trial computed {self.smaller}, and '
                   'multiplied times and memory.')
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
  end = time.perf_counter() + SECONDS
  t, whole = experiment.config.train, program.make(experiment)
  small = _smaller(whole)
  place = files.beside(pathlib.Path(tempfile.gettempdir(), 'trial'))
  files.remove_leftovers(place.parent)
  with (tempfile.TemporaryDirectory(prefix=place.name) as folder,
        contextlib.closing(Trainer(dataclasses.replace(
            small, folder=pathlib.Path(folder)))) as run):
    say('compiling the steps ...')
    state = run.restore()
    run.compile()
    before = np.array(machine.cpu_times())
    with signals.interrupting():
      state, step_seconds = _train(run, state, min(STEPS, t.steps), end)
      val, test = (run.data.splits[name] for name in ('val', 'test'))
      batch_seconds = _validate(run, state, run.program.sizes.eval_batch)
    ran, waited = np.maximum(machine.cpu_times() - before, 0)
    # An accelerator may have chosen smaller batches for the whole run.
    made = run.program.sizes
    sizes = made if small is experiment else whole.sizes
    examples, size = run.config.train.batch_size, sizes.eval_batch
    return Trial(
        run.step, t.steps, step_seconds * t.batch_size / examples,
        batch_seconds * size / made.eval_batch,
        -(-t.steps // t.eval_every) if len(val) else 0,
        -(-len(val) // size), -(-len(test) // size),
        run.counters.compile_seconds,
        machine.peak_memory() + _more_memory(run, sizes), machine.device_name(),
        waited / max(ran + waited, 1e-9), '' if small is experiment else (
            f'{examples} of the {t.batch_size} examples of a step and '
            f'{made.eval_batch} of the {size} of an evaluation batch'))


def _smaller(whole: program.Program) -> Experiment:
  """Returns an experiment with short steps; prints how long a trial takes.

  A step has about 6 operations for each parameter and token, an evaluation 2.
  """
  experiment, sizes = whole.experiment, whole.sizes
  if not is_cpu(whole.mesh):
    return experiment
  config = experiment.config.copy_and_resolve_references()
  tokens = experiment.length * (1 + experiment.task.dual)
  each = 6 * tokens * program.count_parameters(whole.state_shape)[
      'num_params'] / (_SPEED * machine.cpu_count())
  most, together = int(_LONGEST / each), check.sharing(config)
  examples, evaluated = config.train.batch_size, sizes.eval_batch
  if whole.mesh.size == 1 and examples > max(most, together):
    examples = min(sizes.microbatch, max(most // together, 1) * together)
    evaluated = min(evaluated, examples)
    config.train.update({
        'batch_size': examples, 'microbatch_size': examples,
        'eval_batch_size': evaluated})
    experiment = dataclasses.replace(
        experiment, config=config, objective=dataclasses.replace(
            experiment.objective, config=config))
  begun, step = 8 + 2.5 * config.encoder.num_layers, examples * each
  say('the trial takes about ' + _time(
      begun + min(STEPS * step, max(SECONDS - begun, 0) + step)
      + BATCHES * evaluated * each / 3) + ', or longer on a busy machine')
  return experiment


def _more_memory(run, sizes):
  """Returns the bytes that batches of `sizes` need beyond those of a run."""
  made = run.program.sizes
  if sizes == made:
    return 0
  # Gradients and their sums need this, whatever the batch.
  kept = 8 * program.count_parameters(run.program.state_shape)['num_params']
  train, scored = (step.memory_analysis().temp_size_in_bytes
                   for step in (run.train_step, run.eval_step))
  return int(  # memory that a step has freed is kept
      (sizes.microbatch / made.microbatch - 1) * max(train - kept, 0)
      + (sizes.eval_batch / made.eval_batch - 1) * scored)


def _train(run, state, most, end):
  """Makes up to `most` steps until a time; returns (state, seconds per step).

  The first step counts only if there is no other.
  """
  start = begun = time.perf_counter()
  while run.step < most and (
      not run.step or time.perf_counter() < end):
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
