"""Saves and restores the checkpoints of a run.

`checkpoints/last` holds the whole state and the run's counters (JSON).
`checkpoints/best` holds the parameters to be scored. Orbax writes to a
temporary folder and renames it, so a kill leaves the previous checkpoint. Orbax
has no checksums of its own for arrays. So the JSON holds checksums of the
state, of the best parameters that it names, and of itself. Two states are kept,
with their best parameters. If the newer one is damaged, the run resumes from
the older one. In a multi-process run, each process reads its parts. If one of
them finds damage, all raise the error.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from lra.core import distributed, files, machine
from lra.core.distributed import is_leader
from lra.core.errors import UserError
from lra.core.terminal import say

# Version of the names and shapes in a checkpoint.
LAYOUT = 3
_YEARS = 10 * 365 * 24 * 3600  # seconds
OTHER = 'its content has changed since it was saved'
# Beginnings of storage errors that do not mean damage.
_STORAGE = ('PERMISSION_DENIED', 'UNAVAILABLE', 'DEADLINE_EXCEEDED', 'ABORTED')
# Errors of a missing file, which is damage.
_MISSING = (errno.ENOENT, errno.ENOTDIR)


class Damaged(Exception):
  """The folder `path` is damaged. `differs`: its arrays have other shapes."""

  def __init__(self, path: pathlib.Path, why: str, differs: str = ''):
    super().__init__(f'{path} is damaged ({why})')
    self.path, self.differs = path, differs


class Checkpoints:
  """The folders `last` and `best` of a run; `read_only` while a run may write.
  """

  def __init__(self, folder: pathlib.Path, *, read_only: bool = False):
    self.folder = folder.resolve()
    self._read_only = read_only
    self._last = self._manager('last', keep=2)
    self._best = self._manager('best', keep=None)
    self._best_sums = {}  # step -> checksum of the best parameters
    self._names = {}  # step of a state -> step of its best parameters

  def _manager(self, name, keep):
    writes = not self._read_only
    if writes and is_leader():
      (self.folder / name).mkdir(parents=True, exist_ok=True)
    distributed.barrier()
    options = ocp.CheckpointManagerOptions(
        max_to_keep=keep if writes else None, create=False,
        cleanup_tmp_directories=writes, enable_async_checkpointing=writes,
        read_only=self._read_only,
        # Listed processes wait for each other through JAX's coordinator. By
        # default they would wait through their devices, which training uses
        # too.
        multiprocessing_options=ocp.options.MultiprocessingOptions(
            active_processes=set(range(jax.process_count()))),
        # To create folders in the background, Orbax would wait for a signal.
        # All runs of this process would share the name of this signal.
        async_options=ocp.AsyncOptions(
            create_directories_asynchronously=False,
            # Orbax measures this limit by the wall clock, which jumps after a
            # laptop has slept. Several processes need the limit to notice that
            # one hangs.
            **({} if distributed.is_multiprocess() else {
                'timeout_secs': _YEARS})))
    return ocp.CheckpointManager(self.folder / name, options=options)

  def save_last(self, step: int, state: Any, progress: dict) -> None:
    """Saves the state of `step`, a tree of arrays, in the background.

    `progress` are plain JSON values, of which `best_step` is the step of the
    best parameters. If the state was saved before, only `progress` is replaced.
    """
    # `progress` may name the best parameters, so they must be on disk first.
    self._best.wait_until_finished()
    if step in self._last.all_steps():
      self._renew(step, progress)
    else:
      self._last.save(step, args=ocp.args.Composite(
          state=ocp.args.StandardSave(state),
          memory=ocp.args.JsonSave(
              self._metadata_of(progress, checksum(state)))))
    self._names[step] = progress.get('best_step')
    named = {self._names.get(s) for s in self._last.all_steps()}
    for unnamed in sorted(set(self._best.all_steps()) - named):
      self._best.delete(unnamed)

  def _metadata_of(self, progress, of_state):
    """Returns the JSON that is saved beside a state; `_metadata` reads it."""
    memory = json.loads(json.dumps({
        **progress, 'layout': LAYOUT, 'checksums': [
            of_state, self._best_sums.get(progress.get('best_step'))]}))
    return {**memory, 'checksum': checksum_of_json(memory)}

  def _renew(self, step, progress):
    """Replaces the progress that was saved with a state, in one rename."""
    self._last.wait_until_finished()
    try:
      _, (of_state, _) = self._metadata(step)
    except Damaged as e:
      raise self._error([e], others=True) from e
    path = self.folder / 'last' / str(step) / 'memory' / 'metadata'
    memory = json.dumps(self._metadata_of(progress, of_state))
    distributed.run_or_fail_together(
        lambda: is_leader() and files.write_all({path: memory.encode()}))

  def save_best(self, step: int, params: Any) -> None:
    """Saves parameters for evaluation; replaces stale ones of this step."""
    # When processes wait for each other, Orbax has one name for both folders.
    self._last.wait_until_finished()
    if step in self._best.all_steps():
      self._best.delete(step)
    self._best_sums[step] = checksum(params)
    self._best.save(step, args=ocp.args.StandardSave(params))

  def restore_last(self, like: Any,
                   like_best: Any = None,
                   only: int | None = None) -> tuple[Any, dict] | None:
    """Returns (state, progress) of the newest valid checkpoint, or None.

    If its state or its best parameters are damaged, a checkpoint is moved to
    `damaged`, with a message; or just skipped, if `read_only`.

    Args:
      like: a state of the same shapes, dtypes and shardings.
      like_best: arrays like those given to `save_best`; None to skip them.
      only: the step to restore; None for the newest.
    """
    damaged = []
    for step in reversed(_steps(self._last)):
      if only not in (None, step):
        continue
      try:
        progress, sums = self._metadata(step)
        state = read(self.folder / 'last' / str(step) / 'state', like, sums[0])
        self._best_sums[progress.get('best_step')] = sums[1]
        if like_best is not None and sums[1] is not None:
          self._read_best(progress['best_step'], like_best)
      except Damaged as e:
        damaged.append(e)
        continue
      if not self._read_only:
        self._fall_back_to(step, damaged)
      return state, progress
    if damaged:
      raise self._error(damaged)
    return None

  def restore_best(self, step: int, like: Any) -> Any:
    try:
      return self._read_best(step, like)
    except Damaged as e:
      raise self._error([e], others=not self._read_only) from e

  def _error(self, damaged, others=False):
    elsewhere = '' if self._read_only else ', or choose another --workdir'
    for e in damaged:
      if e.differs:
        return UserError(
            f'{e.path} is not of this config: {e.differs}. Undo the changes '
            'made since, in config.json or in the code of the model'
            f'{elsewhere}.')
    what = '; '.join(map(str, damaged))
    if others:
      return UserError(
          f'{what}: the same command resumes from the previous checkpoint.')
    if self._read_only:
      return UserError(
          f'{what}: restore it from a copy, or give another of the checkpoints '
          f'in {self.folder}.')
    return UserError(
        f'{what}, and there is no other checkpoint: restore it, or delete '
        f'{self.folder} to start this run again.')

  def wait(self) -> None:
    self._best.wait_until_finished()
    self._last.wait_until_finished()

  def close(self) -> None:
    self.wait()
    self._best.close()
    self._last.close()

  def _metadata(self, step):
    """Returns (progress, checksums) of a state."""
    path = self.folder / 'last' / str(step) / 'memory'
    memory, why = distributed.broadcast_from_leader(lambda: read_json(path))
    if why:
      raise Damaged(path, why)
    if not isinstance(memory, dict):
      raise Damaged(path, 'it is not a JSON object')
    if memory.get('layout') != LAYOUT:
      raise UserError(
          f'The checkpoint {path.parent} was written by another version of lra:'
          ' update lra if that is newer, choose another --workdir, or delete '
          f'{self.folder} to start this run again.')
    of_all = memory.pop('checksum', None)
    if of_all != checksum_of_json(memory):
      raise Damaged(path, OTHER)
    del memory['layout']
    return memory, memory.pop('checksums')

  def _read_best(self, step, like):
    if step not in self._best_sums:
      self._load_names()
    return read(self.folder / 'best' / str(step), like,
                self._best_sums.get(step), item='default')

  def _fall_back_to(self, step, damaged):
    """Moves states newer than `step` away and drops newer best parameters."""
    for error in damaged:
      say(f'{error}: it is moved to {self.folder / "damaged"}, and the run '
          f'resumes from step {step}.')
      if error.path.is_relative_to(self.folder / 'best'):
        self._move_away(error.path)
    for newer in filter(lambda s: s > step, self._last.all_steps()):
      self._move_away(self.folder / 'last' / str(newer))
    # The other processes wait until the leader has moved the files.
    distributed.run_or_fail_together(lambda: None)
    self._last.reload()
    self._best.reload()
    self._load_names()
    for newer in filter(lambda s: s > step, _steps(self._best)):
      self._best.delete(newer)  # this validation runs again

  def _load_names(self):
    for kept in _steps(self._last):
      with contextlib.suppress(Damaged, UserError):
        progress, sums = self._metadata(kept)
        self._names[kept] = best = progress.get('best_step')
        self._best_sums.setdefault(best, sums[1])

  def _move_away(self, path):
    if is_leader() and path.exists():
      target = self.folder / 'damaged' / f'{path.parent.name}-{path.name}'
      shutil.rmtree(target, ignore_errors=True)
      target.parent.mkdir(exist_ok=True)
      os.replace(path, target)


def _steps(manager):
  """Returns the steps of a folder's checkpoints, as the leader sees them."""
  return distributed.broadcast_from_leader(lambda: sorted(manager.all_steps()))


def read_json(path: pathlib.Path) -> tuple[Any, str]:
  """Returns (the JSON of a folder, '') or (None, the reason)."""
  return _read(path, path, ocp.JsonCheckpointHandler(), ocp.args.JsonRestore())


def read(path: pathlib.Path, like: Any, expected: str | None,
         item: str = '') -> Any:
  """Returns the arrays in the folder `path / item`.

  Args:
    like: arrays of the same shapes, dtypes and shardings.
    expected: checksum of the saved arrays, None if unknown.

  Raises:
    Damaged: the arrays are not the saved ones.
  """
  tree, why = distributed.run_or_fail_together(lambda: _read(
      path, path / item, ocp.StandardCheckpointHandler(),
      ocp.args.StandardRestore(like)))
  if distributed.all_gather(bool(why)).any():
    why = why or 'another process cannot read it'
  elif expected is not None and distributed.all_gather(
      checksum(tree) != expected).any():
    why = OTHER
  if why:
    raise Damaged(path, why, _difference(path / item, like))
  return tree


def _read(folder, path, handler, args):
  """Reads without waiting for other processes, which may have failed."""
  me = jax.process_index()
  try:
    _check_files(folder)
    with ocp.Checkpointer(
        handler, multiprocessing_options=ocp.options.MultiprocessingOptions(
            primary_host=me, active_processes={me})) as reader:
      return reader.restore(path, args=args), ''
  except Exception as e:
    _check_is_damage(folder, e)
    return None, type(e).__name__


def _check_files(folder):
  """Raises OSError for a pipe or a device, on which Orbax would hang."""
  for path in folder.rglob('*'):
    if not path.is_dir():
      files.opened(path).close()


def _difference(path, like):
  """Describes how arrays in a folder differ; '' if its metadata is damaged."""
  try:
    theirs = _shapes(ocp.StandardCheckpointHandler().metadata(path).tree)
  except Exception:  # damaged metadata may raise any error
    return ''
  return difference(theirs, _shapes(like))


def difference(theirs: Mapping[str, tuple], ours: Mapping[str, tuple]) -> str:
  """Describes the first difference of two {name: (shape, dtype)}, or ''."""
  differ = sorted({name for name, _ in theirs.items() ^ ours.items()},
                  key=lambda name: (not name.startswith('params'), name))
  for name in differ[:1]:
    if name not in theirs:
      return f'it has no {name}'
    if name not in ours:
      return f'it has {name}, which the config does not have'
    shapes, dtypes = zip(theirs[name], ours[name], strict=True)
    it, config = dtypes if shapes[0] == shapes[1] else map(list, shapes)
    return f'{name} is {it} in the checkpoint, {config} in the config'
  return ''


def _shapes(tree):
  """Maps names (params/encoder/block_0/mlp/kernel) to shapes and dtypes."""
  return {
      jax.tree_util.keystr(name, simple=True, separator='/'): (
          tuple(x.shape), np.dtype(x.dtype).name)
      for name, x in jax.tree_util.tree_leaves_with_path(tree)}


def checksum(tree: Any) -> str:
  """Returns the checksum of names, dtypes, shapes and values in a tree."""
  summed = hashlib.blake2b(digest_size=16)
  for name, x in jax.tree_util.tree_leaves_with_path(tree):
    x = distributed.whole(x)
    summed.update(
        f'{jax.tree_util.keystr(name)} {x.dtype} {x.shape}'.encode())
    summed.update(x.tobytes())
  return summed.hexdigest()


def checksum_of_json(value: Any) -> str:
  text = json.dumps(value, sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _check_is_damage(path, error):
  """Raises UserError if reading failed because of the storage, not of damage.

  Raises `error` itself if memory ran out. Tensorstore puts the system's error
  number somewhere in the error's text.
  """
  cause = error
  while cause is not None:
    text = ' '.join(str(cause).split())
    found = re.search(r"os_error_code='?(\d+)", text)
    number = int(found[1]) if found else getattr(cause, 'errno', None)
    if number not in (None, *_MISSING) or not found and (
        text.startswith(_STORAGE)):
      why = os.strerror(number) if found else text[:200]
      raise UserError(
          f'Cannot read {path} ({why}): fix this, then repeat the command.'
      ) from error
    if isinstance(cause, MemoryError) or machine.out_of_memory(cause):
      raise error
    cause = cause.__cause__ or (
        None if cause.__suppress_context__ else cause.__context__)
