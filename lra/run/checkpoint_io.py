"""Reads folders of a checkpoint and compares them with their checksums.

Orbax has no checksums of its own for arrays. In a multi-process run, each
process reads its parts. If one of them finds damage, all raise the error.
"""

import errno
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from lra.core import distributed, files, machine
from lra.core.errors import UserError

OTHER = 'its content has changed since it was saved'
# Beginnings of storage errors that do not mean damage.
_STORAGE = ('PERMISSION_DENIED', 'UNAVAILABLE', 'DEADLINE_EXCEEDED', 'ABORTED')
# Errors of a missing file, which is damage.
_MISSING = (errno.ENOENT, errno.ENOTDIR)


class Damaged(Exception):
  """Raised if the folder `path` is damaged, for the reason `why`.

  If its arrays have other names, shapes or dtypes than expected, `differs`
  describes the difference. Otherwise `differs` is ''.
  """

  def __init__(self, path: pathlib.Path, why: str, differs: str = ''):
    super().__init__(f'{path} is damaged ({why})')
    self.path, self.differs = path, differs


def read_json(path: pathlib.Path) -> tuple[Any, str]:
  """Returns (the JSON of a folder, '') or (None, the reason)."""
  return _read(path, path, ocp.JsonCheckpointHandler(), ocp.args.JsonRestore())


def read(path: pathlib.Path, like: Any, expected: str | None,
         item: str = '') -> Any:
  """Reads the arrays in the folder `path / item`.

  Args:
    path: the folder, which may be damaged.
    like: arrays of the same shapes, dtypes and shardings.
    expected: checksum of the saved arrays, None if unknown.
    item: the path of the arrays inside the folder.

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
  """Describes the first array in which a file and a config differ, or ''.

  Both arguments are {name: (shape, dtype)}.
  """
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
  """Returns the checksum of plain JSON values."""
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
      why = text[:200] if number is None else os.strerror(number)
      raise UserError(
          f'Cannot read {path} ({why}): fix this, then repeat the command.'
      ) from error
    if isinstance(cause, MemoryError) or machine.out_of_memory(cause):
      raise error
    cause = cause.__cause__ or (
        None if cause.__suppress_context__ else cause.__context__)
