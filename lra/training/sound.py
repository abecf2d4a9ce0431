"""Folders of a checkpoint, read and held to what was saved.

Orbax has no checksums of its own for arrays. Each of several processes reads
its parts, and what is wrong for one of them is so for all.
"""

import hashlib
import json
import pathlib
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from lra import distributed, files
from lra.training import storage

OTHER = 'its content is not what was saved'


class Damaged(Exception):
  """A folder, `path`, does not hold what was saved, for the reason `why`.

  Or it holds something else than is wanted, as `differs` says, '' if not.
  """

  def __init__(self, path: pathlib.Path, why: str, differs: str = ''):
    super().__init__(f'{path} is damaged ({why})')
    self.path, self.differs = path, differs


def read_json(path: pathlib.Path) -> tuple[Any, str]:
  """(the JSON of a folder, why there is none)."""
  try:
    _check_files(path)
    with _reader(ocp.JsonCheckpointHandler()) as reader:
      return reader.restore(path, args=ocp.args.JsonRestore()), ''
  except Exception as e:
    storage.check_is_damage(path, e)
    return None, type(e).__name__


def read(path: pathlib.Path, like: Any, expected: str | None,
         item: str = '') -> Any:
  """The arrays that are in a folder.

  Args:
    path: the folder, which is damaged or not.
    like: arrays of the same shapes, dtypes and shardings.
    expected: their checksum, None if nobody knows.
    item: where in the folder they are.

  Raises:
    Damaged: the arrays are not those.
    UserError: a process may not read them, which says nothing of them.
  """
  why, tree = '', None

  def read_ours():
    nonlocal why, tree
    try:
      _check_files(path)
      with _reader(ocp.StandardCheckpointHandler()) as reader:
        tree = reader.restore(
            path / item, args=ocp.args.StandardRestore(like))
    except Exception as e:
      storage.check_is_damage(path, e)
      why = type(e).__name__

  distributed.in_turn(read_ours)
  if distributed.gathered(bool(why)).any():
    raise Damaged(path, why or 'another process cannot read it',
                  _difference(path / item, like))
  if expected is not None and distributed.gathered(
      checksum(tree) != expected).any():
    raise Damaged(path, OTHER, _difference(path / item, like))
  return tree


def _check_files(folder):
  """Raises OSError for a pipe or a device, for which Orbax would wait."""
  for path in folder.rglob('*'):
    if not path.is_dir():
      files.opened(path).close()


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


def checksum_of_json(value: Any) -> str:
  """Of plain JSON values."""
  text = json.dumps(value, sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
