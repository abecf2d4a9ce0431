"""The training of an open run, step by step: `train.train` keeps the state."""

import collections
import contextlib
import dataclasses
import functools
import math
import time

import jax

from lra.core import distributed, machine, signals
from lra.core.distributed import SharedStop, is_multiprocess
from lra.core.errors import UserError
from lra.core.terminal import StopRequest, bar, say
from lra.data import batches, prepared
from lra.run import opening, optim, program, provenance, scoring
from lra.run.counters import at_guessing, scored_of
from lra.run.process_cache import step_key
from lra.run.sizes import is_cpu
from lra.run.step import TrainState


class Diverged(Exception):
  """Raised if the loss is not finite."""


class Trainer(opening.OpenRun):
  """Trains and scores an open run.

  Attributes:
    train_step, given: the compiled step and its last argument, once `compile`
      has been called.
    heard: in a multi-process run, the stops that all processes know of; else
      None.
  """

  def __init__(self, *args, **options):
    super().__init__(*args, **options)
    train = self.data.splits['train']
    self._lengths = (prepared.lengths(train)
                     if len(self.program.all_lengths) > 1 else None)
    self._entropy = self.program.objective.label_entropy(train)
    self._learning_rate = optim.schedule(self.config)
    # A CPU has no spare core for prefetching, and makes batches fast enough.
    self._prefetch = None if is_cpu(self.program.mesh) else batches.Prefetch(
        lambda step: self.put(self.batch(step)), self.config.train.steps)
    self.heard = self._gradient_norm = self._logged = None
    self._under_way, self._saved_at = collections.deque(), time.monotonic()

  @signals.at_once()
  def compile(self) -> None:
    """Compiles the training and the evaluation step; chooses batch sizes."""
    steps, seconds = self._shared.once(
        step_key(self.program), lambda: program.timed(self._compiled))
    sizes, self.train_step, self._eval_step, self._param_norm = steps
    self.program = self.program.sized(
        microbatch=sizes.microbatch, eval_batch=sizes.eval_batch)
    self.given = self.program.put_given()
    self.identity |= provenance.of_sizes(self.program)
    self._write_environment()
    self.counters.compile_seconds += seconds
    self._logged = self.step, self.counters.train_seconds
    distributed.barrier()
    self._shared.compiled.set()

  def _compiled(self):
    made, train_step = self.program.fit_train()
    made, eval_step = made.fit_eval()
    say(f'{self.title}: {made.sizes} ({machine.device_name()}).')
    return made.sizes, train_step, eval_step, made.compile_norm()

  def listen(self, own: StopRequest) -> StopRequest | SharedStop:
    """Returns the stop requests to obey: of this process, or of all."""
    if is_multiprocess():
      from lra.run import mesh
      self.heard = SharedStop(own, self._shared.once(
          f'largest on {dict(self.program.mesh.shape)}',
          lambda: mesh.largest(self.program.mesh)))
    return self.heard or own

  def batch(self, number: int) -> batches.Batch:
    """Returns this process's part of the batch of step `number`."""
    split, micro = self.data.splits['train'], self.program.sizes.microbatch
    return batches.train_batch(
        functools.partial(self.program.objective.batch, split), len(split),
        batch_size=self.config.train.batch_size, microbatch_size=micro,
        seed=self.config.seed, step=number, lengths=self._lengths,
        rows=self.program.rows(micro))

  def put(self, batch: batches.Batch):
    """Puts the result of `batch` on the devices."""
    return jax.device_put(self.program.put(batch, micro=True),
                          self.program.batch_shardings(micro=True))

  def next_batch(self):
    """Returns the batch of the next step, for `update`."""
    if self._prefetch:
      return self._prefetch.get(self.step)
    return self.program.put(self.batch(self.step), micro=True)

  def update(self, state: TrainState, batch) -> TrainState:
    """Dispatches an update; waits while more than `AHEAD` are under way."""
    with self.profile.update(self.step + 1, self._stop_clock):
      self.counters.start_clock()
      state, self._gradient_norm = self.train_step(state, batch, self.given)
      self._wait_behind(self._gradient_norm)
      self.step += 1
    self.counters.timed_steps += 1
    return state

  def _wait_behind(self, sent):
    """Waits while more than `AHEAD` batches are under way; `sent` is the last.

    In a multi-process run, all processes learn here about stop requests made
    before the finished batch was dispatched.
    """
    self._under_way.append(self.heard.ask(sent) if self.heard else sent)
    if len(self._under_way) > program.AHEAD:
      done = jax.block_until_ready(self._under_way.popleft())
      if self.heard:
        self.heard.hear(done)

  def _stop_clock(self):
    """Stops the clock of training time once the last update is done."""
    jax.block_until_ready(self._gradient_norm)
    self.counters.stop_clock()

  def log(self, state: TrainState) -> tuple[TrainState, str]:
    """Logs the training since the last log point.

    Returns the state with its sums at zero, and a text for the bar.

    Raises:
      Diverged: the loss is not finite.
    """
    self._stop_clock()
    self.counters.start_clock()
    metrics = self.program.objective.metrics(
        {k: float(v) for k, v in jax.device_get(state.sums).items()})
    _check_finite(metrics['loss'])
    if self.counters.notes_guessing(at_guessing(
        metrics['loss'], self._entropy, self.program.objective.num_classes),
                                    self.step, self.config.train.steps):
      say(f'{self.title}: for {self.step - self.counters.guessing_since:,} '
          'steps the training loss has been that of guessing '
          f'({self._entropy:.3f}), so the model has learnt nothing yet.')
    step, seconds = self._logged
    self._logged = self.step, self.counters.train_seconds
    speed = (self.step - step) * self.config.train.batch_size / (
        self.counters.train_seconds - seconds)
    gradient = float(self._gradient_norm)
    self.run.log(
        step=self.step, split='train', **metrics,
        learning_rate=float(self._learning_rate(self.step - 1)),
        grad_norm=_or_none(gradient),
        param_norm=_or_none(float(self._param_norm(state.params))),
        examples_per_s=speed, seconds=self.counters.train_seconds)
    return self.program.reset_sums(state), ', '.join([
        f'loss {metrics["loss"]:.3f}',
        *(f'acc {v:.1%}' for k, v in metrics.items() if k == 'accuracy'),
        f'grad {gradient:.2g}', f'{speed:.0f} ex/s'])

  def validation_due(self) -> bool:
    """Returns True if this step needs a validation and has had none."""
    t, step = self.config.train, self.step
    due = step and (step % t.eval_every == 0 or step == t.steps)
    return bool(due) and self.counters.validated_step != step

  def validate(self, state: TrainState, stop: StopRequest) -> bool:
    """Scores the validation split; keeps the parameters if best so far.

    Returns False if a stop was requested meanwhile; nothing is kept then.

    Raises:
      Diverged: the loss is not finite.
    """
    self._stop_clock()
    if len(self.data.splits['val']):
      scores = self.evaluate(scored_of(state), 'val', stop)
      if scores is None:
        return False
      say(f'step {self.step}{self._which}: validation {_shown(scores)}')
      if self.config.train.mixer_std:
        compiled = self._shared.once(f'mixer_std {step_key(self.program)}',
                                     self.program.compile_mixer_std)
        self.run.log(step=self.step, split='mixer_std', **{
            f'block_{i}': _or_none(value) for i, value in enumerate(
                scoring.mixer_std(self.program, compiled, scored_of(state),
                                  self.data.splits['val']))})
      self.counters.last_val = scores
      best = self.counters.best_val
      if best is None or self.program.objective.better(scores, best):
        self.counters.best_val, self.counters.best_step = scores, self.step
        self.checkpoints.save_best(self.step, scored_of(state))
    self.counters.validated_step = self.step
    return True

  def evaluate(self, scored, split: str, stop: StopRequest) -> dict | None:
    """Returns and logs the objective's scores of a split; None after a stop.

    Its time is not training time. `scored` has `params` and `constants`.

    Raises:
      Diverged: the loss is not finite.
    """
    examples, start = self.data.splits[split], time.perf_counter()
    size = self.program.sizes.eval_batch
    with bar(total=-(-len(examples) // size), what=split,
             unit='batch') as shown:
      scores = scoring.score(
          self.program, self._eval_step, scored, examples,
          self._ticks(shown, stop),
          self.data.splits['train'] if split == 'test' else None)
    if scores is None:
      return None
    _check_finite(scores['loss'])
    seconds = time.perf_counter() - start
    self.counters.eval_seconds += seconds
    numbers = {k: scores[k] for k in ('loss', 'accuracy') if k in scores}
    self.run.log(
        step=self.step, split=split, **numbers,
        examples_per_s=len(examples) / seconds,
        seconds=self.counters.train_seconds)
    return scores

  def _ticks(self, shown, stop):
    """Returns a function that notes a batch; it returns False after a stop."""
    def tick(counted):
      shown.update()
      self._wait_behind(counted)
      return not stop.reason
    return tick

  def minutes_since_save(self) -> float:
    return (time.monotonic() - self._saved_at) / 60

  def save(self, state: TrainState) -> None:
    """Saves a checkpoint, unless the loss is not finite.

    A diverged state is worthless. The next log point reports it, so that the
    step in the result does not depend on when checkpoints are saved.
    """
    self._stop_clock()
    self._saved_at = time.monotonic()
    self.counters.note_memory()
    if math.isfinite(float(state.sums['loss'])):
      self.checkpoints.save_last(
          self.step, state, dataclasses.asdict(self.counters))

  def score(self, state: TrainState, stop: StopRequest) -> dict | None:
    """Returns the scores of the test split; None after a stop.

    The best or the last parameters are scored, once. Afterwards they are scored
    on the task's tests of other lengths.
    """
    self.checkpoints.wait()
    scored = self.counters.chosen(self.program, state, self.checkpoints)
    test = self.evaluate(scored, 'test', stop)
    if test is None:
      return None
    start, key = time.perf_counter(), step_key(self.program)
    try:
      for name, scores in scoring.longer(
          self.program, scored,
          lambda text, make: self._shared.once(f'{text} {key}', make),
          lambda shown: self._ticks(shown, stop)):
        if scores is None:
          return None
        self.longer[name] = scores
    except UserError as e:
      if self.config.protocol == 'state':  # made for these tests
        say(f'{self.title}: no tests of longer sequences: {e}')
    self.counters.eval_seconds += time.perf_counter() - start
    return test

  def close(self) -> None:
    """Waits until all is written; unlocks the directory."""
    with contextlib.closing(super()):
      if self._prefetch:
        self._prefetch.close()


def _shown(scores):
  """Formats scores for the terminal."""
  accuracy = scores.get('accuracy')
  first = '' if accuracy is None else f'accuracy {accuracy:.2%}, '
  return f'{first}loss {scores["loss"]:.4f}'


def _or_none(number):
  """Returns a number, or None if it has overflowed: JSON has no infinity."""
  return number if math.isfinite(number) else None


def _check_finite(loss):
  if not math.isfinite(loss):
    raise Diverged
