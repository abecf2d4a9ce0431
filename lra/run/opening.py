"""Opens a run for training: its directory, data, program and checkpoints."""

import contextlib
from collections.abc import Sequence

from lra.core import distributed, machine, signals
from lra.core.distributed import is_leader
from lra.core.errors import UserError
from lra.core.terminal import say
from lra.data import baselines, prepared
from lra.run import profile, program, provenance, rundir
from lra.run.checkpoint import Checkpoints
from lra.run.counters import RunCounters, scored_of
from lra.run.experiment import Experiment
from lra.run.process_cache import ProcessCache
from lra.run.step import TrainState
from lra.schema import identity
from lra.schema.result import Result


class OpenRun:
  """A run whose directory is locked.

  Attributes:
    config: the whole config.
    program: its compiled functions.
    data: its prepared data set.
    identity: fields of env.json and of the result that describe its origin.
    run: its `RunDirectory`.
    checkpoints: its `Checkpoints`.
    step: updates dispatched so far, once `restore` has been called.
    counters: `RunCounters`, which each checkpoint stores with the state.

  Raises:
    UserError: the run cannot be opened; a new directory is removed again.
  """

  @signals.at_once()
  def __init__(self, experiment: Experiment, log: Sequence[str] = (),
               profiled: range = range(0), recorded: bool = False,
               shared: ProcessCache | None = None):
    self.config, folder = experiment.config, experiment.folder
    self._shared, self._log_names = shared or ProcessCache(), log
    # A run that began on another kind of machine keeps its dtype.
    self._began = distributed.broadcast_from_leader(
        lambda: rundir.environment(folder))
    self.program = program.make(
        experiment, dtype=self._began.get('dtype'), before=self._began)
    self.identity = provenance.of_run(self.program, self._shared, recorded)
    self.run, self.longer, self._start = None, {}, None
    try:
      distributed.run_or_fail_together(self._open)
      theirs = distributed.broadcast_from_leader(lambda: self.data.fingerprint)
      distributed.run_or_fail_together(lambda: self._read_start(theirs))
    except UserError:
      if self.run:
        self.run.undo()
      raise
    if self.config.train.include_val:
      self.data = prepared.fold_val_into_train(self.data)
    self.checkpoints = Checkpoints(folder / 'checkpoints')
    self.profile = profile.Profile(folder, profiled)

  def _open(self):
    """Opens the run directory, and loads the data."""
    self.run = rundir.RunDirectory(
        self.program.experiment.folder, self.config.to_dict(),
        writes=is_leader())
    with signals.interrupting():
      self.data = self._shared.data(self.program.experiment)

  def _read_start(self, fingerprint):
    """Compares the data; reads the parameters of a run that starts from others.
    """
    if self.data.fingerprint != fingerprint:
      raise UserError(
          f'{self.config.task}: this process has other data than process 0: '
          'give all of them one config.data_dir, or prepare the data again.')
    kept, last = self._began.get('init_sha256'), self.run.folder / (
        'checkpoints/last')
    if self.config.init_source and not any(last.glob('[0-9]*')):
      from lra.run import warm_start
      self._start = warm_start.read(self.config, self.program)
      if kept not in (None, self._start.sha256):
        raise UserError(
            f'{self._start.folder} has other parameters than those that '
            f'{self.run.folder} began with: choose another --workdir.')
      kept = self._start.sha256
    if kept:
      self.identity['init_sha256'] = kept

  @signals.at_once()
  def restore(self) -> TrainState:
    """Returns the state of the newest checkpoint, or a fresh one.

    Raises:
      UserError: no checkpoint can be read, the data has changed, or the updates
        to trace are made already.
    """
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
    self.run.rewind(self.step, self.counters.validated_step)
    self.profile.check(self.step)
    before, ours = self._began, self.data.fingerprint
    if self.step:
      if before.get('data_fingerprint', ours) != ours:
        raise UserError(
            f'{self.run.folder} was trained on other data than is prepared now '
            '(env.json has its fingerprint): choose another --workdir.')
      self.identity |= provenance.continued(before, self.identity)
      self.identity['runs_at_once'] = max(
          self.identity['runs_at_once'], before.get('runs_at_once', 1))
    self._write_environment()
    self.run.log_to(self._log_names)
    return state

  def _write_environment(self):
    words = self.program.experiment.vocabulary
    self.run.write_environment(
        {**machine.environment(), **self.identity, **self._data_origin},
        words.contents() if words else {})

  @property
  def _data_origin(self):
    return {'data_fingerprint': self.data.fingerprint,
            'data_origin': self.data.info.get('origin')}

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

  def finish(self, status: str, test: dict | None) -> Result:
    """Draws the curves; writes and returns the result, which ends the run."""
    self.counters.note_memory()
    objective = self.program.objective
    floors = baselines.of_data(
        objective.task, self.data) if objective.supervised else {}
    fields = {
        **self.counters.result_fields(self.program, status, self.step),
        'test': test, 'longer': self.longer or {}, 'floors': floors,
        **self._data_origin, **self.identity}
    if status != 'oom':  # with oom, other processes may not call this
      fields['peak_memory_bytes'] = int(
          distributed.all_gather(fields['peak_memory_bytes']).max())
    fields |= self.run.draw_curves(floors)
    return self.run.write_result(fields)

  def close(self) -> None:
    """Waits until all is written; unlocks the directory."""
    with contextlib.ExitStack() as last:
      last.callback(self.run.close)
      last.callback(self.checkpoints.close)
      self.profile.close()
