"""Keeps the progress of a run and chooses the parameters that it scores."""

import dataclasses
import pathlib

from lra.errors import UserError
from lra.system import machine
from lra.training.checkpoint import Checkpoints
from lra.training.program import Program

# Fields that checkpoints of earlier versions lack.
_LATER = {'peak_memory_bytes'}


@dataclasses.dataclass
class Progress:
  """Holds the progress of a run; each checkpoint stores it with the state."""
  validated_step: int = 0
  best_step: int = 0
  best_val: dict | None = None
  last_val: dict | None = None
  timed_steps: int = 0
  train_seconds: float = 0.0
  eval_seconds: float = 0.0
  compile_seconds: float = 0.0
  peak_memory_bytes: int = 0

  @classmethod
  def of(cls, fields: dict, where: pathlib.Path) -> 'Progress':
    """Makes the progress from the fields of a checkpoint.

    Args:
      fields: names and values.
      where: the checkpoints, for the error.

    Raises:
      UserError: a field is unknown or missing.
    """
    names = {f.name for f in dataclasses.fields(cls)}
    if fields.keys() | _LATER != names:
      raise UserError(
          f'The checkpoints in {where} have other fields '
          f'({", ".join(sorted(fields))}) than this version of the program: '
          'choose another --workdir, or delete them to start this run again.')
    return cls(**fields)

  def note_memory(self) -> None:
    """Raises `peak_memory_bytes` to the peak of this process, if higher."""
    self.peak_memory_bytes = max(
        self.peak_memory_bytes, machine.peak_memory())

  def scores_best(self, config) -> bool:
    """Returns True if the best parameters are scored on test, not the last."""
    return config.train.select == 'best' and self.best_val is not None


def scored_of(state) -> dict:
  """Returns `params` and `constants` to score, of a state or its shape."""
  params = state.params if state.ema is None else state.ema
  return {'params': params, 'constants': state.constants}


def chosen(program: Program, state, progress: Progress,
           checkpoints: Checkpoints) -> dict:
  """Returns parameters for the test split: best on validation, or last.

  Raises:
    UserError: the best parameters are damaged.
  """
  if progress.scores_best(program.config):
    return checkpoints.restore_best(
        progress.best_step, scored_of(program.state_shape))
  return scored_of(state)
