"""Counts what a run has done, and reports it in its result."""

import dataclasses
import math
import pathlib
import time

from lra.core import machine
from lra.core.errors import UserError
from lra.run.checkpoint import Checkpoints
from lra.run.program import Program

# Fields that checkpoints of earlier versions lack.
_LATER = {'peak_memory_bytes', 'guessing_since', 'guessing_step'}
# The loss of a model that only knows how frequent classes are is the entropy of
# the labels; dropout and large steps raise it a little.
_BELOW, _ABOVE = 0.99, 1.05
_SHARE = 0.1  # warn if the loss is that of guessing for this share of all steps


@dataclasses.dataclass
class RunCounters:
  """Counts steps and seconds; each checkpoint stores it with the state."""
  validated_step: int = 0
  best_step: int = 0
  best_val: dict | None = None
  last_val: dict | None = None
  timed_steps: int = 0
  train_seconds: float = 0.0
  eval_seconds: float = 0.0
  compile_seconds: float = 0.0
  peak_memory_bytes: int = 0
  guessing_since: int = -1  # step since which the loss is that of guessing
  guessing_step: int = 0  # step at which the warning about it was due
  _clock_started = None  # no field: checkpoints do not contain it

  @classmethod
  def of(cls, fields: dict, where: pathlib.Path) -> 'RunCounters':
    names = {f.name for f in dataclasses.fields(cls)}
    if fields.keys() | _LATER != names:
      raise UserError(
          f'The checkpoints in {where} have other fields '
          f'({", ".join(sorted(fields))}) than this version of the program: '
          'choose another --workdir, or delete them to start this run again.')
    return cls(**fields)

  def start_clock(self) -> None:
    if self._clock_started is None:
      self._clock_started = time.perf_counter()

  def stop_clock(self) -> None:
    """Stops the clock, if it runs, and adds its time to `train_seconds`."""
    if self._clock_started is not None:
      self.train_seconds += time.perf_counter() - self._clock_started
      self._clock_started = None

  def note_memory(self) -> None:
    self.peak_memory_bytes = max(
        self.peak_memory_bytes, machine.peak_memory())

  def notes_guessing(self, guesses: bool, step: int, steps: int) -> bool:
    """Returns True once: if the loss has been that of guessing for long.

    That is for a tenth of all `steps`, at each log point and without a break.
    """
    if not guesses:
      self.guessing_since = -1
    elif self.guessing_since < 0:
      self.guessing_since = step
    elif not self.guessing_step and (
        step - self.guessing_since >= _SHARE * steps):
      self.guessing_step = step
      return True
    return False

  def scores_best(self, config) -> bool:
    """Returns whether the best parameters, not the last, are scored on test."""
    return config.train.select == 'best' and self.best_val is not None

  def chosen(self, program: Program, state, checkpoints: Checkpoints) -> dict:
    """Returns the parameters to score on test: best on validation, or last."""
    if self.scores_best(program.config):
      return checkpoints.restore_best(
          self.best_step, scored_of(program.state_shape))
    return scored_of(state)

  def result_fields(self, program: Program, status: str, step: int) -> dict:
    config, objective = program.config, program.objective
    best = self.scores_best(config)
    speed = self.timed_steps / max(self.train_seconds, 1e-9)
    documents = 2 if objective.task.dual else 1
    tokens = config.train.batch_size * objective.seq_len * documents
    return {
        'status': status, 'objective': config.objective, 'task': config.task,
        'model': config.model.name, 'protocol': config.protocol,
        'seed': config.seed, 'steps': step,
        'best_step': self.best_step if best else step,
        'val': self.best_val if best else self.last_val,
        'steps_per_s': speed, 'tokens_per_s': speed * tokens,
        'peak_memory_bytes': self.peak_memory_bytes,
        'train_seconds': self.train_seconds,
        'eval_seconds': self.eval_seconds,
        'compile_seconds': self.compile_seconds,
        'guessing_step': self.guessing_step or None,
        'config': config.to_dict()}


def scored_of(state) -> dict:
  params = state.params if state.ema is None else state.ema
  return {'params': params, 'constants': state.constants}


def at_guessing(loss: float, entropy: float | None, num_classes: int) -> bool:
  """Returns whether a loss is that of guessing; a uniform guess has ln C."""
  return bool(entropy) and (
      _BELOW * entropy <= loss <= _ABOVE * math.log(num_classes))
