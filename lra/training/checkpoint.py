"""Checkpoints of a run. The only file that imports orbax.

`checkpoints/last` holds the whole state with the run's progress (JSON);
`checkpoints/best` holds the parameters to be scored. Orbax writes to a
temporary folder and renames it, so a kill leaves the previous checkpoint. It
has no checksums of its own for arrays: the progress holds those of the state,
of the best parameters it names and of itself. Two states are kept, with what
they name, and a damaged one gives way to the one before.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from lra import distributed, files
from lra.distributed import leads
from lra.errors import UserError
from lra.terminal import say
from lra.training import storage

# Names and shapes of what is in a checkpoint; 1 had other names of layers, 2
# had no checksums.
LAYOUT = 3
_READABLE = (2, 3)


class _Damaged(Exception):
  """A folder, `path`, does not hold what was saved, for the reason `why`.

  Or it holds something else than is wanted, as `differs` says, '' if not.
  """

  def __init__(self, path: pathlib.Path, why: str, differs: str = ''):
    super().__init__(f'{path} is damaged ({why})')
    self.path, self.differs = path, differs


class Checkpoints:
  """The two checkpoint folders of a run directory.

  Args:
    folder: where they are.
    read_only: whether nothing there may change, as a run may be writing.

  Raises:
    UserError: they cannot be made.
  """

  def __init__(self, folder: pathlib.Path, *, read_only: bool = False):
    self.folder = folder.resolve()
    self._read_only = read_only
    for path in (self.folder, self.folder / 'last', self.folder / 'best'):
      if path.exists() and not path.is_dir():
        raise UserError(
            f'{path} is not a folder: move it away, then repeat the command.')
    self._last = self._manager('last', keep=2)
    self._best = self._manager('best', keep=None)
    self._best_sums = {}  # step -> checksum of the best parameters
    self._names = {}  # step of a state -> step of the best that it names

  def _manager(self, name, keep):
    writes = not self._read_only
    if writes and leads():
      (self.folder / name).mkdir(parents=True, exist_ok=True)
    distributed.meet()
    options = ocp.CheckpointManagerOptions(
        max_to_keep=keep if writes else None, create=False,
        cleanup_tmp_directories=writes, enable_async_checkpointing=writes,
        read_only=self._read_only,
        # Processes that are named wait for each other by the service at which
        # they met; else through their devices, as training does.
        multiprocessing_options=ocp.options.MultiprocessingOptions(
            active_processes=set(range(jax.process_count()))),
        # In the background Orbax would wait for a signal that has one name in
        # the whole process, where other runs may save at the same time.
        async_options=ocp.AsyncOptions(create_directories_asynchronously=False))
    return ocp.CheckpointManager(self.folder / name, options=options)

  def save_last(self, step: int, state: Any, progress: dict) -> None:
    """Saves the state of `step`; returns while writing.

    Of a state that is there, newer progress takes the place of what it has.

    Args:
      step: updates made.
      state: a tree of arrays.
      progress: what is kept with it, as plain JSON values; `best_step` is the
        step of the best parameters.
    """
    # Best first: `progress` may name a best step that must exist on restart.
    self._best.wait_until_finished()
    self._check_is_there()
    if step in self._last.all_steps():
      self._renew(step, progress)
    else:
      self._last.save(step, args=ocp.args.Composite(
          state=ocp.args.StandardSave(state),
          memory=ocp.args.JsonSave(self._remembered(
              progress, checksum(state)))))
    self._names[step] = progress.get('best_step')
    self._forget({self._names.get(s) for s in self._last.all_steps()})

  def _remembered(self, progress, of_state):
    """What is kept beside a state, as JSON: `_memory` reads it."""
    memory = json.loads(json.dumps({
        **progress, 'layout': LAYOUT, 'checksums': [
            of_state, self._best_sums.get(progress.get('best_step'))]}))
    return {**memory, 'checksum': _of_json(memory)}

  def _renew(self, step, progress):
    """Replaces the progress that was saved with a state, in one rename."""
    self._last.wait_until_finished()
    try:
      _, (of_state, _) = self._memory(step)
    except _Damaged as e:
      raise self._goes_back(e) from e
    path = self.folder / 'last' / str(step) / 'memory' / 'metadata'
    memory = json.dumps(self._remembered(progress, of_state))
    distributed.in_turn(
        lambda: leads() and files.write_all({path: memory.encode()}))

  def save_best(self, step: int, params: Any) -> None:
    """Saves what evaluation needs; a stale one of the same step goes."""
    # Where processes wait for each other Orbax gives both folders one name.
    self._last.wait_until_finished()
    self._check_is_there()
    if step in self._best.all_steps():
      self._best.delete(step)
    self._best_sums[step] = checksum(params)
    self._best.save(step, args=ocp.args.StandardSave(params))

  def restore_last(self, like: Any,
                   like_best: Any = None,
                   only: int | None = None) -> tuple[Any, dict] | None:
    """(state, progress) of the newest sound checkpoint, None if there is none.

    Newer ones that are damaged, or that name best parameters which are, are
    moved to `damaged`; it is said which. Where nothing may change they are
    passed over.

    Args:
      like: a state of the same shapes, dtypes and shardings.
      like_best: the same for what `save_best` saves; None to leave it unread.
      only: the step to restore; None for the newest.

    Raises:
      UserError: no checkpoint can be read, or one is of an earlier version or
        of another config.
    """
    damaged = []
    for step in reversed(_steps(self._last)):
      if only not in (None, step):
        continue
      try:
        progress, sums = self._memory(step)
        state = self._state(step, like, sums)
        self._best_sums[progress.get('best_step')] = sums[1]
        if like_best is not None and sums[1] is not None:
          self._sound_best(progress['best_step'], like_best)
      except _Damaged as e:
        damaged.append(e)
        continue
      if not self._read_only:
        self._go_back_to(step, damaged)
      return state, progress
    if damaged:
      raise self._unreadable(damaged)
    return None

  def restore_best(self, step: int, like: Any) -> Any:
    """What `save_best` saved at `step`; raises UserError if it is damaged."""
    try:
      return self._sound_best(step, like)
    except _Damaged as e:
      if self._read_only or e.differs:
        raise self._unreadable([e]) from e
      raise self._goes_back(e) from e

  def _goes_back(self, damaged):
    return UserError(
        f'{damaged}: the same command goes on from the checkpoint before it.')

  def _unreadable(self, damaged):
    """The error of checkpoints without a sound one among them."""
    other = next((e for e in damaged if e.differs), None)
    if other:
      x64 = ' or in JAX_ENABLE_X64' if jax.config.jax_enable_x64 else ''
      elsewhere = '' if self._read_only else ', or choose another --workdir'
      return UserError(
          f'{other.path} is not of this config: {other.differs}. Undo what was '
          f'changed since, in config.json or in the code of the model{x64}'
          f'{elsewhere}.')
    what = '; '.join(map(str, damaged))
    if self._read_only:
      return UserError(
          f'{what}: restore it from a copy, or give another of the checkpoints '
          f'in {self.folder}.')
    return UserError(
        f'{what}, and there is no other checkpoint: restore it, or delete '
        f'{self.folder} to start this run again.')

  def wait(self) -> None:
    """Waits until all is on disk."""
    self._best.wait_until_finished()
    self._last.wait_until_finished()

  def close(self) -> None:
    self.wait()
    self._best.close()
    self._last.close()

  def _check_is_there(self):
    if leads() and not (self.folder / 'last').exists():
      raise UserError(
          f'{self.folder} was removed while it was in use: repeat the command '
          'to start this run again.')

  def _memory(self, step):
    """(progress, checksums) of a state; checksums of layout 2 are None."""
    path = self.folder / 'last' / str(step) / 'memory'
    memory, why = distributed.told(lambda: _json(path))
    if why:
      raise _Damaged(path, why)
    if not isinstance(memory, dict):
      raise _Damaged(path, 'it is no JSON object')
    layout = memory.pop('layout', 1)
    if layout == 2 and 'checksum' not in memory:
      return memory, (None, None)
    if layout in _READABLE:
      of_all = memory.pop('checksum', None)
      if of_all != _of_json({**memory, 'layout': layout}):
        raise _Damaged(path, _OTHER)
      return memory, memory.pop('checksums')
    raise UserError(
        f'The checkpoint {path.parent} was written by another version of this '
        'program: choose another --workdir, or delete '
        f'{self.folder} to start this run again.')

  def _state(self, step, like, sums):
    return _read(self.folder / 'last' / str(step) / 'state', like, sums[0])

  def _sound_best(self, step, like):
    if step not in self._best_sums:
      self._recall()
    path = self.folder / 'best' / str(step)
    return _read(path, like, self._best_sums.get(step), item='default')

  def _go_back_to(self, step, damaged):
    """Moves newer states away if damaged; drops what comes again."""
    for error in damaged:
      say(f'{error}: it is moved to {self.folder / "damaged"}, and the run '
          f'goes on from step {step}.')
      if error.path.is_relative_to(self.folder / 'best'):
        self._move_away(error.path)
    for newer in filter(lambda s: s > step, self._last.all_steps()):
      self._move_away(self.folder / 'last' / str(newer))
    distributed.in_turn(lambda: None)  # the leader has moved them
    self._last.reload()
    self._best.reload()
    self._recall()
    for newer in filter(lambda s: s > step, _steps(self._best)):
      self._best.delete(newer)  # of a validation that a kill made undone

  def _recall(self):
    """Reads which best parameters the states name, and their checksums."""
    for kept in _steps(self._last):
      with contextlib.suppress(_Damaged, UserError):
        progress, sums = self._memory(kept)
        self._names[kept] = best = progress.get('best_step')
        self._best_sums.setdefault(best, sums[1])

  def _move_away(self, path):
    if not (leads() and path.exists()):
      return
    target = self.folder / 'damaged' / f'{path.parent.name}-{path.name}'
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(exist_ok=True)
    os.replace(path, target)

  def _forget(self, named):
    """Drops best parameters that no state names."""
    for step in self._best.all_steps():
      if step not in named:
        self._best.delete(step)


_OTHER = 'its content is not what was saved'


def _steps(manager):
  """The steps that the leader sees."""
  return distributed.told(lambda: sorted(manager.all_steps()))


def _json(path):
  """(the JSON of a folder, why there is none)."""
  try:
    with _reader(ocp.JsonCheckpointHandler()) as reader:
      return reader.restore(path, args=ocp.args.JsonRestore()), ''
  except Exception as e:
    storage.check_is_damage(path, e)
    return None, type(e).__name__


def _read(path, like, expected, item=''):
  """The arrays that are in a folder.

  Each process reads its parts; what is wrong for one of them is so for all.

  Args:
    path: the folder, which is damaged or not.
    like: arrays of the same shapes, dtypes and shardings.
    expected: their checksum, None if nobody knows.
    item: where in the folder they are.

  Raises:
    _Damaged: the arrays are not those.
    UserError: a process may not read them, which says nothing of them.
  """
  why, tree = '', None

  def read():
    nonlocal why, tree
    try:
      with _reader(ocp.StandardCheckpointHandler()) as reader:
        tree = reader.restore(
            path / item, args=ocp.args.StandardRestore(like))
    except Exception as e:
      storage.check_is_damage(path, e)
      why = type(e).__name__

  distributed.in_turn(read)
  if distributed.gathered(bool(why)).any():
    raise _Damaged(path, why or 'another process cannot read it',
                   _difference(path / item, like))
  if expected is not None and distributed.gathered(
      checksum(tree) != expected).any():
    raise _Damaged(path, _OTHER, _difference(path / item, like))
  return tree


def _difference(path, like):
  """How arrays in a folder differ in name, shape or dtype, '' for not.

  Nor where nothing says how: what is damaged may say anything.
  """
  try:
    theirs = _shapes(ocp.StandardCheckpointHandler().metadata(path).tree)
  except Exception:
    return ''
  ours = _shapes(like)
  differ = sorted({name for name, _ in theirs.items() ^ ours.items()},
                  key=lambda name: (not name.startswith('params/'), name))
  for name in differ[:1]:
    if name not in theirs:
      return f'it has no {name}'
    if name not in ours:
      return f'it has {name}, which the config does not have'
    shapes, dtypes = zip(theirs[name], ours[name], strict=True)
    it, config = dtypes if shapes[0] == shapes[1] else map(list, shapes)
    return f'{name} is {it} in it, and {config} by the config'
  return ''


def _shapes(tree):
  """Name, such as params/encoder/block_0/mlp/kernel -> shape and dtype."""
  return {
      jax.tree_util.keystr(name, simple=True, separator='/'): (
          tuple(x.shape), np.dtype(x.dtype).name)
      for name, x in jax.tree_util.tree_leaves_with_path(tree)}


def _reader(handler):
  """Reads alone: a manager would wait for a process that has failed."""
  me = jax.process_index()
  return ocp.Checkpointer(
      handler, multiprocessing_options=ocp.options.MultiprocessingOptions(
          primary_host=me, active_processes={me}))


def checksum(tree: Any) -> str:
  """Of names, dtypes, shapes and values of the arrays in a tree."""
  summed = hashlib.blake2b(digest_size=16)
  for name, x in jax.tree_util.tree_leaves_with_path(tree):
    x = distributed.whole(x)
    summed.update(
        f'{jax.tree_util.keystr(name)} {x.dtype} {x.shape}'.encode())
    summed.update(x.tobytes())
  return summed.hexdigest()


def _of_json(value):
  text = json.dumps(value, sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
