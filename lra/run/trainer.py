"""Trains one run: loads, updates, validates, saves and scores it."""

import collections
import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Sequence

import jax
import numpy as np

from lra.core import distributed, files, machine, signals
from lra.core.distributed import SharedStop, is_leader, is_multiprocess
from lra.core.errors import UserError
from lra.core.terminal import StopRequest, bar, say
from lra.data import baselines, batches, longer, prepared
from lra.run import (
  extrapolation,
  mesh,
  optim,
  profile,
  program,
  provenance,
  rundir,
  warm_start,
)
from lra.run.checkpoint import Checkpoints
from lra.run.counters import RunCounters, at_guessing, scored_of
from lra.run.experiment import Experiment
from lra.run.process_cache import ProcessCache, step_key
from lra.run.sizes import is_cpu
from lra.schema import identity
from lra.schema.result import Result


class Diverged(Exception):
  """Raised if the loss is not finite."""


class Trainer:
  """Holds a run during training: its directory and all loaded objects.

  `train` calls its methods in order.

  Attributes:
    config: the whole config.
    program: its compiled functions.
    train_step: the compiled training step, once `compile` has been called.
    given: the last argument of `train_step`.
    state: parameters, optimizer and sums, on the devices.
    step: updates dispatched so far.
    counters: `RunCounters`, which each checkpoint stores with the state.
    heard: in a multi-process run, the stops that all processes know of; else
      None.
  """

  @signals.at_once()
  def __init__(self, experiment: Experiment, log: Sequence[str] = (),
               profiled: range = range(0), recorded: bool = False,
               shared: ProcessCache | None = None):
    config, folder = experiment.config, experiment.folder
    self.config = config
    self._shared, self.heard = shared or ProcessCache(), None
    # A run that began on another kind of machine keeps its dtype.
    began = distributed.broadcast_from_leader(
        lambda: rundir.environment(folder))
    self.program = program.make(
        experiment, dtype=began.get('dtype'), before=began)
    self.identity = provenance.of_run(self.program, self._shared, recorded)
    self.run = self.data = self._start = None
    self.longer = {}
    try:
      distributed.run_or_fail_together(self._open)
      distributed.run_or_fail_together(self._load)
      theirs = distributed.broadcast_from_leader(lambda: self.data.fingerprint)
      distributed.run_or_fail_together(lambda: self._check_same(theirs))
      distributed.run_or_fail_together(lambda: self._read_start(began))
    except UserError:
      if self.run:
        self.run.undo()
      raise
    if config.train.include_val:
      self.data = prepared.fold_val_into_train(self.data)
    self._lengths = (prepared.lengths(self.data.splits['train'])
                     if len(self.program.all_lengths) > 1 else None)
    objective = self.program.objective
    self.baselines = baselines.of_data(
        objective.task, self.data) if objective.supervised else {}
    self.checkpoints = Checkpoints(folder / 'checkpoints')
    self._restore()
    profile.check(profiled, self.step, folder)
    if self.step:
      self.identity |= provenance.continued(began, self.identity)
      self.identity['runs_at_once'] = max(
          self.identity['runs_at_once'], began.get('runs_at_once', 1))
    self._write_environment()
    self.given = self.program.put_given()
    self._entropy = self.program.objective.label_entropy(
        self.data.splits['train'])
    self._learning_rate = optim.schedule(config)
    # A CPU has no spare core for prefetching, and makes batches fast enough.
    self._prefetch = None if is_cpu(self.program.mesh) else batches.Prefetch(
        lambda step: self.put(self.batch(step)), config.train.steps)
    self._under_way = collections.deque()
    self._logged = self.step, self.counters.train_seconds
    self._saved_at = time.monotonic()
    self._profile = profile.Profile(
        folder / 'profile', profiled, self._stop_clock)
    self.run.log_to(log)

  def listen(self, own: StopRequest) -> StopRequest | SharedStop:
    """Returns the stop requests to obey: of this process, or of all."""
    if is_multiprocess():
      self.heard = SharedStop(own, self._shared.once(
          f'largest on {dict(self.program.mesh.shape)}',
          lambda: mesh.largest(self.program.mesh)))
    return self.heard or own

  @property
  def title(self) -> str:
    return f'{self.config.model.name} on {self.config.task}{self._which}'

  @property
  def _which(self):
    """Describes this run among several runs of a process, for messages."""
    varied = [name for name in self._shared.varied if name != 'seed']
    values = identity.flatten(self.config.to_dict())
    named = [f', {name} {values[name]}' for name in varied if name in values]
    if self.config.seed or 'seed' in self._shared.varied:
      named.append(f', seed {self.config.seed}')
    return ''.join(named)

  def _open(self):
    self.run = rundir.RunDirectory(
        self.program.experiment.folder, self.config.to_dict(),
        writes=is_leader())

  def _load(self):
    with signals.interrupting():
      self.data = self._shared.data(self.program.experiment)

  def _check_same(self, fingerprint):
    if self.data.fingerprint != fingerprint:
      raise UserError(
          f'{self.config.task}: this process has other data than process 0: '
          'give all of them one config.data_dir, or prepare the data again.')

  def _read_start(self, began):
    """Reads the parameters of config.init_from, unless the run resumes."""
    config, kept = self.config, began.get('init_sha256')
    last = self.program.experiment.folder / 'checkpoints' / 'last'
    if config.init_source and not any(last.glob('[0-9]*')):
      self._start = warm_start.read(config, self.program)
      if kept not in (None, self._start.sha256):
        raise UserError(
            f'{self.program.experiment.start} has other parameters than those '
            f'that {self.run.folder} began with: choose another --workdir.')
      kept = self._start.sha256
    if kept:
      self.identity['init_sha256'] = kept

  def _restore(self):
    restored = self.checkpoints.restore_last(
        self.program.state_shape, scored_of(self.program.state_shape))
    if restored is None:
      self.state, self.counters = self.program.init(), RunCounters()
      if self._start:
        self.state = self._start.state(self.state)
        say(f'{self.title}: parameters of {self.program.experiment.start}:\n'
            f'{self._start.table()}')
        self._start = None  # frees the memory
    else:
      self.state, kept = restored
      self.counters = RunCounters.of(kept, self.checkpoints.folder)
    self.step = int(self.state.step)
    self.run.rewind(self.step, self.counters.validated_step)

  def _write_environment(self):
    path = self.run.folder / 'env.json'
    ours = self.data.fingerprint
    before = rundir.environment(
        self.run.folder).get('data_fingerprint', ours)
    if before != ours and self.step:
      raise UserError(
          f'{self.run.folder} was trained on other data than is prepared now '
          '(env.json has its fingerprint): choose another --workdir.')
    if is_leader():
      files.write_json(path, {
          **machine.environment(), **self.identity, 'data_fingerprint': ours,
          'data_origin': self.data.info.get('origin')})
      words = self.program.experiment.vocabulary
      files.write_all({self.run.folder / name: content for name, content in (
          words.contents() if words else {}).items()})

  @signals.at_once()
  def compile(self) -> None:
    """Compiles the training and the evaluation step; chooses batch sizes."""
    steps, seconds = self._shared.once(
        step_key(self.program), lambda: program.timed(self._compiled))
    sizes, self.train_step, self._eval_step, self._param_norm = steps
    self.program = self.program.sized(
        microbatch=sizes.microbatch, eval_batch=sizes.eval_batch)
    self.identity |= provenance.of_sizes(self.program)
    self._write_environment()
    self.counters.compile_seconds += seconds
    distributed.barrier()
    self._shared.compiled.set()

  def _compiled(self):
    made, train_step = self.program.fit_train()
    made, eval_step = made.fit_eval()
    say(f'{self.title}: {made.sizes} ({machine.device_name()}).')
    return made.sizes, train_step, eval_step, made.compile_norm()

  def batch(self, number: int):
    """Returns the batch of step `number`, as microbatches."""
    split, micro = self.data.splits['train'], self.program.sizes.microbatch
    return batches.train_batch(
        functools.partial(self.program.objective.batch, split), len(split),
        batch_size=self.config.train.batch_size, microbatch_size=micro,
        seed=self.config.seed, step=number, lengths=self._lengths,
        rows=self.program.rows(micro))

  def put(self, batch):
    """Puts a batch that this process has made on the devices."""
    return jax.device_put(self.program.put(batch, micro=True),
                          self.program.batch_shardings(micro=True))

  def next_batch(self):
    """Returns the batch of the next step, for `update`."""
    if self._prefetch:
      return self._prefetch.get(self.step)
    return self.program.put(self.batch(self.step), micro=True)

  def update(self, batch) -> None:
    """Dispatches an update; waits while more than `AHEAD` are under way.

    Args:
      batch: the batch from `next_batch`.
    """
    with self._profile.update(self.step + 1):
      self.counters.start_clock()
      self.state, self._gradient_norm = self.train_step(
          self.state, batch, self.given)
      self._wait_behind(self._gradient_norm)
      self.step += 1
    self.counters.timed_steps += 1

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
    """Stops the clock of training time once the device is idle."""
    jax.block_until_ready(self.state)
    self.counters.stop_clock()

  def log(self) -> str:
    """Logs the training since the last log point; returns a text for the bar.

    Raises:
      Diverged: the loss is not finite.
    """
    self._stop_clock()
    self.counters.start_clock()
    sums = {k: float(v) for k, v in jax.device_get(self.state.sums).items()}
    metrics = self.program.objective.metrics(sums)
    _check_finite(metrics['loss'])
    self._notice_guessing(metrics['loss'])
    speed = self._examples_per_s()
    gradient = float(self._gradient_norm)
    self.run.log(
        step=self.step, split='train', **metrics,
        learning_rate=float(self._learning_rate(self.step - 1)),
        grad_norm=_or_none(gradient),
        param_norm=_or_none(float(self._param_norm(self.state.params))),
        examples_per_s=speed, seconds=self.counters.train_seconds)
    self.state = self.program.reset_sums(self.state)
    return ', '.join([
        f'loss {metrics["loss"]:.3f}',
        *(f'acc {v:.1%}' for k, v in metrics.items() if k == 'accuracy'),
        f'grad {gradient:.2g}', f'{speed:.0f} ex/s'])

  def _notice_guessing(self, loss):
    """Prints once that the loss has been that of guessing for long."""
    steps, entropy = self.config.train.steps, self._entropy
    guesses = at_guessing(
        loss, entropy, self.program.objective.num_classes)
    if self.counters.notes_guessing(guesses, self.step, steps):
      say(f'{self.title}: for {self.step - self.counters.guessing_since:,} '
          f'steps the training loss has been that of guessing ({entropy:.3f}), '
          'so the model has learnt nothing yet.')

  def _examples_per_s(self):
    """Returns the speed since the last log point, or since the run resumed."""
    step, seconds = self._logged
    self._logged = self.step, self.counters.train_seconds
    examples = (self.step - step) * self.config.train.batch_size
    return examples / (self.counters.train_seconds - seconds)

  def validation_due(self) -> bool:
    """Returns True if this step needs a validation and has had none."""
    t, step = self.config.train, self.step
    due = step and (step % t.eval_every == 0 or step == t.steps)
    return bool(due) and self.counters.validated_step != step

  def validate(self, stop: StopRequest) -> bool:
    """Scores the validation split; keeps the parameters if best so far.

    Returns:
      False if a stop was requested meanwhile; nothing is kept then.

    Raises:
      Diverged: the loss is not finite.
    """
    self._stop_clock()
    if len(self.data.splits['val']):
      scores = self.evaluate(scored_of(self.state), 'val', stop)
      if scores is None:
        return False
      say(f'step {self.step}{self._which}: validation {_shown(scores)}')
      self._log_mixer_std()
      self.counters.last_val = scores
      best = self.counters.best_val
      if best is None or self.program.objective.better(scores, best):
        self.counters.best_val, self.counters.best_step = scores, self.step
        self.checkpoints.save_best(self.step, scored_of(self.state))
    self.counters.validated_step = self.step
    return True

  def _log_mixer_std(self):
    """Logs the standard deviations if config.train.mixer_std asks for them."""
    if not self.config.train.mixer_std:
      return
    compiled = self._shared.once(
        f'mixer_std {step_key(self.program)}', self.program.compile_mixer_std)
    scored, examples = scored_of(self.state), self.data.splits['val']
    size = self.program.sizes.eval_batch
    batch = next(batches.eval_batches(
        functools.partial(self.program.objective.batch, examples),
        np.arange(len(examples)), batch_size=size, seed=self.config.seed,
        rows=self.program.rows(size)))
    found = compiled(scored['params'], scored['constants'],
                     self.program.put(batch, micro=False))
    self.run.log(step=self.step, split='mixer_std', **{
        f'block_{i}': _or_none(float(value)) for i, value in enumerate(found)})

  def evaluate(self, scored, split: str, stop: StopRequest) -> dict | None:
    """Scores a split and logs the scores; its time is not training time.

    Args:
      scored: `params` and `constants` of the model.
      split: name of the split.
      stop: a request to stop ends the evaluation.

    Returns:
      The objective's scores, None after a stop.

    Raises:
      Diverged: the loss is not finite.
    """
    examples, size = self.data.splits[split], self.program.sizes.eval_batch
    start = time.perf_counter()
    with bar(total=-(-len(examples) // size), what=split,
             unit='batch') as shown:
      counts = self.program.evaluate(
          self._eval_step, scored, examples, self._ticks(shown, stop))
    if counts is None:
      return None
    scores = self.program.objective.scores(counts)
    _check_finite(scores['loss'])
    if split == 'test':
      scores |= self.program.objective.analysis(
          counts, self.program.order(examples),
          self.data.splits['train'], examples)
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

  def save(self) -> None:
    """Saves a checkpoint, unless the loss is not finite.

    A diverged state is worthless. The next log point reports it, so that the
    step in the result does not depend on when checkpoints are saved.
    """
    self._stop_clock()
    self._saved_at = time.monotonic()
    self.counters.note_memory()
    if math.isfinite(float(self.state.sums['loss'])):
      self.checkpoints.save_last(
          self.step, self.state, dataclasses.asdict(self.counters))

  def score(self, stop: StopRequest) -> dict | None:
    """Scores the test split, once, with the best or the last parameters.

    Afterwards it scores the task's tests of other lengths.

    Returns:
      The objective's scores, None after a stop.
    """
    self.checkpoints.wait()
    scored = self.counters.chosen(self.program, self.state, self.checkpoints)
    test = self.evaluate(scored, 'test', stop)
    if test is None or not self._score_longer(scored, stop):
      return None
    return test

  def _score_longer(self, scored, stop):
    """Scores generated tests of other lengths; returns False after a stop."""
    start = time.perf_counter()
    self.longer = {}
    for name in self.program.objective.task.longer:
      split = longer.split(self.program.objective.task.name, name)
      longest = int(prepared.lengths(split).max())
      try:
        made, eval_step = self._shared.once(
            f'{longest} tokens {step_key(self.program)}',
            lambda longest=longest: extrapolation.at_length(
                self.program, longest).fit_eval())
      except UserError as e:
        if self.config.protocol == 'state':  # made for these tests
          say(f'{self.title}: no tests of longer sequences: {e}')
        break
      with bar(total=None, what=f'{name} tokens', unit='batch') as shown:
        scores = extrapolation.score(
            made, eval_step, scored, split, self._ticks(shown, stop))
      if scores is None:
        return False
      self.longer[name] = scores
    self.counters.eval_seconds += time.perf_counter() - start
    return True

  def finish(self, status: str, test: dict | None) -> Result:
    """Draws the curves; writes and returns the result, which ends the run."""
    self.counters.note_memory()
    fields = {
        **self.counters.result_fields(self.program, status, self.step),
        'test': test, 'longer': self.longer, 'floors': self.baselines,
        'data_fingerprint': self.data.fingerprint,
        'data_origin': self.data.info.get('origin'), **self.identity}
    if status != 'oom':  # with oom, other processes may not call this
      fields['peak_memory_bytes'] = int(
          distributed.all_gather(fields['peak_memory_bytes']).max())
    path = self.run.metrics_path
    if is_leader() and path.exists():
      from lra.run import curves  # imports matplotlib, which takes a second
      try:
        points = curves.read(path)
        fields['learnt_step'] = curves.learnt_step(points)
        if self.config.train.mixer_std:
          fields['mixer_std'] = curves.mixer_std(points)
        curves.plot(path, self.run.folder / 'curves.png', self.baselines)
      except UserError as e:
        say(f'No curves are drawn: {e}')
    return self.run.write_result(fields)

  def close(self) -> None:
    """Waits until all is written; unlocks the directory."""
    with contextlib.ExitStack() as last:
      last.callback(self.run.close)
      last.callback(self.checkpoints.close)
      if self._prefetch:
        last.callback(self._prefetch.close)
      self._profile.close()
    self.state = None  # frees the memory for the next run of this process


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
