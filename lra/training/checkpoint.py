"""Checkpoints of a run. The only file that imports orbax.

`checkpoints/last` holds the whole state with what the loop must remember
(JSON); `checkpoints/best` holds the parameters to be scored. Orbax writes to
a temporary folder and renames it, so a kill leaves the previous checkpoint.
"""

import pathlib
from typing import Any

import orbax.checkpoint as ocp

from lra.errors import UserError


class Checkpoints:
  """The two checkpoint folders of a run directory."""

  def __init__(self, folder: pathlib.Path):
    options = lambda keep: ocp.CheckpointManagerOptions(
        max_to_keep=keep, create=True, cleanup_tmp_directories=True,
        enable_async_checkpointing=True)
    folder = folder.resolve()
    self._last = ocp.CheckpointManager(folder / 'last', options=options(1))
    # Two: the newest may be of a validation that a kill made undone.
    self._best = ocp.CheckpointManager(folder / 'best', options=options(2))

  def save_last(self, step: int, state: Any, memory: dict) -> None:
    """Saves the state of `step` unless it is there; returns while writing."""
    # Best first: `memory` may name a best step that must exist on restart.
    self._best.wait_until_finished()
    if step not in self._last.all_steps():
      self._last.save(step, args=ocp.args.Composite(
          state=ocp.args.StandardSave(state),
          memory=ocp.args.JsonSave(memory)))

  def save_best(self, step: int, params: Any) -> None:
    """Saves what evaluation needs; a stale one of the same step goes."""
    if step in self._best.all_steps():
      self._best.delete(step)
    self._best.save(step, args=ocp.args.StandardSave(params))

  def restore_last(self, like: Any) -> tuple[Any, dict] | None:
    """(state, memory) of the newest checkpoint, None where there is none.

    Args:
      like: a state of the same shapes, dtypes and shardings.

    Raises:
      UserError: the checkpoint cannot be read.
    """
    step = self._last.latest_step()
    if step is None:
      return None
    got = self._read(self._last, step, ocp.args.Composite(
        state=ocp.args.StandardRestore(like),
        memory=ocp.args.JsonRestore()))
    return got['state'], got['memory']

  def restore_best(self, step: int, like: Any) -> Any:
    """What `save_best` saved at `step`; raises UserError if unreadable."""
    return self._read(self._best, step, ocp.args.StandardRestore(like))

  def last_step(self) -> int | None:
    return self._last.latest_step()

  def wait(self) -> None:
    self._best.wait_until_finished()
    self._last.wait_until_finished()

  def close(self) -> None:
    self.wait()
    self._best.close()
    self._last.close()

  def _read(self, manager, step, args):
    try:
      return manager.restore(step, args=args)
    except Exception as e:
      raise UserError(
          f'Checkpoint {step} in {manager.directory} cannot be read '
          f'({type(e).__name__}): delete the run directory to start over.'
      ) from e
