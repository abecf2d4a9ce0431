"""Opens a run for training, and trains it step by step.

`train.train` calls the methods of `Trainer` in order, and keeps the state;
`scoring` evaluates it.
"""

import collections
import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Sequence

import jax

from lra.core import distributed, machine, signals, tasks
from lra.core.distributed import SharedStop, is_leader, is_multiprocess
from lra.core.errors import UserError
from lra.core.terminal import StopRequest, say
from lra.data import baselines, batches, prepared
from lra.run import check, optim, profile, program, provenance, rundir
from lra.run.checkpoint import Checkpoints
from lra.run.counters import RunCounters, at_guessing, scored_of
from lra.run.experiment import Experiment
from lra.run.process_cache import ProcessCache, step_key
from lra.run.sizes import is_cpu
from lra.run.step import TrainState
from lra.schema import identity
from lra.schema.result import Result


class Diverged(Exception):
  """Raised if the loss is not finite."""


class Trainer:
  """A run whose directory is locked.

  Attributes:
    identity: fields of env.json and of the result that describe its origin.
    longer: scores of tests of other lengths, by name.
    step, counters: updates dispatched so far, and the `RunCounters` that each
      checkpoint stores with the state; once `restore` has been called.
    train_step, given, eval_step: the compiled training step, its last argument,
      and the evaluation step; once `compile` has been called.
    heard: in a multi-process run, the stops that all processes know of.
  """

  @signals.at_once()
  def __init__(self, experiment: Experiment, log: Sequence[str] = (),
               profiled: range = range(0), recorded: bool = False,
               shared: ProcessCache | None = None):
    self.config, folder = experiment.config, experiment.folder
    self.shared, self._log_names = shared or ProcessCache(), log
    # A run that began on another kind of machine keeps its dtype.
    self._began = distributed.broadcast_from_leader(
        lambda: rundir.environment(folder))
    self.program = program.make(
        experiment, dtype=self._began.get('dtype'), before=self._began)
    self.identity = provenance.of_run(self.program, self.shared, recorded)
    self.directory, self.longer, self._start = None, {}, None
    try:
      distributed.run_or_fail_together(self._open)
      theirs = distributed.broadcast_from_leader(lambda: (
          self.data.fingerprint, bool(rundir.saved(folder))))
      distributed.run_or_fail_together(lambda: self._read_start(*theirs))
    except UserError:
      if self.directory:
        self.directory.undo()
      raise
    if self.config.train.include_val:
      self.data = prepared.fold_val_into_train(self.data)
    objective = self.program.objective
    self.baselines = baselines.of_data(
        objective.task, self.data) if objective.supervised else {}
    self.checkpoints = Checkpoints(folder / 'checkpoints')
    self._profile = profile.Profile(folder, profiled)
    train = self.data.splits['train']
    self._lengths = (prepared.lengths(train)
                     if len(self.program.all_lengths) > 1 else None)
    self._entropy = objective.label_entropy(train)
    self._learning_rate = optim.schedule(self.config)
    # A CPU has no spare core for prefetching, and makes batches fast enough.
    self._prefetch = None if is_cpu(self.program.mesh) else batches.Prefetch(
        lambda step: self.put(self.batch(step)), self.config.train.steps)
    self.heard = self._gradient_norm = self._logged = None
    self._under_way, self._saved_at = collections.deque(), time.monotonic()

  def _open(self):
    self.directory = rundir.RunDirectory(
        self.program.experiment.folder, self.config.to_dict(),
        writes=is_leader())
    with signals.interrupting():
      self.data = self.shared.data(self.program.experiment)

  def _read_start(self, fingerprint, resumes):
    if self.data.fingerprint != fingerprint:
      raise UserError(
          f'{self.config.task}: this process has other data than process 0: '
          'give all of them one config.data_dir, or prepare the data again.')
    kept = self._began.get('init_sha256')
    if self.config.init_source and not resumes:
      from lra.run import warm_start
      self._start = warm_start.read(self.config, self.program)
      if kept not in (None, self._start.sha256):
        raise UserError(
            f'{self._start.folder} has other parameters than those that '
            f'{self.directory.folder} began with: choose another --workdir.')
      kept = self._start.sha256
    if kept:
      self.identity['init_sha256'] = kept

  @signals.at_once()
  def restore(self) -> TrainState:
    """Returns the state of the newest checkpoint, or a fresh one."""
    restored = self.checkpoints.restore_last(
        self.program.state_shape, scored_of(self.program.state_shape))
    if restored is None:
      state, self.counters = self.program.init(), RunCounters()
      if self._start:
        state = self._start.state(state)
        say(f'{self.title}: parameters of {self._start.folder}:\n'
            f'{self._start.table()}')
        self._start = None  # frees the memory
    else:
      state, kept = restored
      self.counters = RunCounters.of(kept, self.checkpoints.folder)
    self.step = int(state.step)
    self.directory.rewind(self.step, self.counters.validated_step)
    self._profile.check(self.step)
    before, ours = self._began, self.data.fingerprint
    if self.step:
      if before.get('data_fingerprint', ours) != ours:
        raise UserError(
            f'{self.directory.folder} was trained on other data than is '
            'prepared now (env.json has its fingerprint): choose another '
            '--workdir.')
      self.identity |= provenance.continued(before, self.identity)
      self.identity['runs_at_once'] = max(
          self.identity['runs_at_once'], before.get('runs_at_once', 1))
    self._write_environment()
    self.directory.log_to(self._log_names)
    for note in check.broken(check.NOTES, self.config):
      self.shared.once(note, lambda note=note: say(f'{self.title}: {note}'))
    return state

  def _write_environment(self):
    words = self.program.experiment.vocabulary
    self.directory.write_environment(
        {**machine.environment(), **self.identity, **self._data_origin},
        {**(words.contents() if words else {}),
         **tasks.described(tasks.get(self.config.task))})

  @property
  def _data_origin(self):
    return {'data_fingerprint': self.data.fingerprint,
            'data_origin': self.data.info.get('origin')}

  @signals.at_once()
  def compile(self) -> None:
    """Compiles the training and the evaluation step; chooses batch sizes."""
    steps, seconds = self.shared.once(
        step_key(self.program), lambda: program.timed(self._compiled))
    sizes, self.train_step, self.eval_step, self._param_norm = steps
    self.program = self.program.sized(
        microbatch=sizes.microbatch, eval_batch=sizes.eval_batch)
    self.given = self.program.put_given()
    self.identity |= provenance.of_sizes(self.program)
    self._write_environment()
    self.counters.compile_seconds += seconds
    self._logged = self.step, self.counters.train_seconds
    distributed.barrier()
    self.shared.compiled.set()

  def _compiled(self):
    made, train_step = self.program.fit_train()
    made, eval_step = made.fit_eval()
    say(f'{self.title}: {made.sizes} ({machine.device_name()}).')
    return made.sizes, train_step, eval_step, made.compile_norm()

  def listen(self, own: StopRequest) -> StopRequest | SharedStop:
    """Returns the stop requests to obey: of this process, or of all."""
    if is_multiprocess():
      from lra.run import mesh
      self.heard = SharedStop(own, self.shared.once(
          f'largest on {dict(self.program.mesh.shape)}',
          lambda: mesh.largest(self.program.mesh)))
    return self.heard or own

  def batch(self, number: int) -> batches.Batch:
    split, micro = self.data.splits['train'], self.program.sizes.microbatch
    return batches.train_batch(
        functools.partial(self.program.objective.batch, split), len(split),
        batch_size=self.config.train.batch_size, microbatch_size=micro,
        seed=self.config.seed, step=number, lengths=self._lengths,
        rows=self.program.rows(micro))

  def put(self, batch: batches.Batch):
    return jax.device_put(self.program.put(batch, micro=True),
                          self.program.batch_shardings(micro=True))

  def next_batch(self):
    if self._prefetch:
      return self._prefetch.get(self.step)
    return self.program.put(self.batch(self.step), micro=True)

  def update(self, state: TrainState, batch) -> TrainState:
    """Dispatches an update; waits while more than `AHEAD` are under way."""
    with self._profile.update(self.step + 1, self.stop_clock):
      self.counters.start_clock()
      state, self._gradient_norm = self.train_step(state, batch, self.given)
      self.wait_behind(self._gradient_norm)
      self.step += 1
    self.counters.timed_steps += 1
    return state

  def wait_behind(self, sent):
    """Waits while more than `AHEAD` batches are under way; `sent` is the last.

    All processes hear of stop requests made before the finished batch was sent.
    """
    self._under_way.append(self.heard.ask(sent) if self.heard else sent)
    if len(self._under_way) > program.AHEAD:
      done = jax.block_until_ready(self._under_way.popleft())
      if self.heard:
        self.heard.hear(done)

  def stop_clock(self):
    jax.block_until_ready(self._gradient_norm)
    self.counters.stop_clock()

  def log(self, state: TrainState) -> tuple[TrainState, str]:
    """Logs the training since the last log point.

    Returns the state with its sums at zero, and a text for the bar. Raises
    `Diverged` if the loss is not finite.
    """
    self.stop_clock()
    self.counters.start_clock()
    metrics = self.program.objective.metrics(
        {k: float(v) for k, v in jax.device_get(state.sums).items()})
    check_finite(metrics['loss'])
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
    self.directory.log(
        step=self.step, split='train', **metrics,
        learning_rate=float(self._learning_rate(self.step - 1)),
        grad_norm=finite(gradient),
        param_norm=finite(float(self._param_norm(state.params))),
        examples_per_s=speed, seconds=self.counters.train_seconds)
    return self.program.reset_sums(state), ', '.join([
        f'loss {metrics["loss"]:.3f}',
        *(f'acc {v:.1%}' for k, v in metrics.items() if k == 'accuracy'),
        f'grad {gradient:.2g}', f'{speed:.0f} ex/s'])

  @property
  def title(self) -> str:
    return f'{self.config.model.name} on {self.config.task}{self.which}'

  @property
  def which(self):
    """Describes this run among several runs of a process, for messages."""
    varied = [name for name in self.shared.varied if name != 'seed']
    values = identity.flatten(self.config.to_dict())
    named = [f', {name} {values[name]}' for name in varied if name in values]
    if self.config.seed or 'seed' in self.shared.varied:
      named.append(f', seed {self.config.seed}')
    return ''.join(named)

  def validation_due(self) -> bool:
    t, step = self.config.train, self.step
    due = step and (step % t.eval_every == 0 or step == t.steps)
    return bool(due) and self.counters.validated_step != step

  def minutes_since_save(self) -> float:
    return (time.monotonic() - self._saved_at) / 60

  def save(self, state: TrainState) -> None:
    """Saves a checkpoint, unless the loss is not finite.

    The next log point reports a diverged state, so that the step in the result
    does not depend on when checkpoints are saved.
    """
    self.stop_clock()
    self._saved_at = time.monotonic()
    self.counters.note_memory()
    if math.isfinite(float(state.sums['loss'])):
      self.checkpoints.save_last(
          self.step, state, dataclasses.asdict(self.counters))

  def finish(self, status: str, test: dict | None) -> Result:
    """Draws the curves; writes and returns the result, which ends the run."""
    self.counters.note_memory()
    fields = {
        **self.counters.result_fields(self.program, status, self.step),
        'test': test, 'longer': self.longer, 'floors': self.baselines,
        **self._data_origin, **self.identity}
    if status != 'oom':  # with oom, other processes may not call this
      fields['peak_memory_bytes'] = int(
          distributed.all_gather(fields['peak_memory_bytes']).max())
    fields |= self.directory.draw_curves(self.baselines)
    return self.directory.write_result(fields)

  def close(self) -> None:
    with contextlib.ExitStack() as last:
      last.callback(self.directory.close)
      last.callback(self.checkpoints.close)
      if self._prefetch:
        last.callback(self._prefetch.close)
      self._profile.close()


def finite(number: float) -> float | None:
  """Returns a number, or None if it has overflowed: JSON has no infinity."""
  return number if math.isfinite(number) else None


def check_finite(loss: float) -> None:
  if not math.isfinite(loss):
    raise Diverged
