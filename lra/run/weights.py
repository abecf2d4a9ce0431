"""Keeps the parameters of a model in one file in the form of safetensors.

Names join the places in the tree by dots, as in
`params.encoder.block_0.mixer.query.kernel`. The file's metadata hold the step
of the parameters and a checksum, since the form has none of its own.
"""

import json
import pathlib
from typing import Any

import jax
import numpy as np

from lra.core import files, foreign, paths
from lra.core.errors import UserError
from lra.run import checkpoint
from lra.schema.fields import COUNT

NAME = 'model.safetensors'
_ABOUT = 'lra'  # the name of our metadata


def names(tree: Any) -> list[str]:
  return [jax.tree_util.keystr(path, simple=True, separator='.')
          for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def save(scored: Any, step: int) -> bytes:
  """Returns the content of a file with a tree of arrays of a step."""
  safetensors = paths.need('safetensors.numpy', NAME)
  arrays = map(np.asarray, jax.tree.leaves(scored))
  # The library writes several metadata in any order.
  about = json.dumps({'step': step, 'checksum': checkpoint.checksum(scored)})
  return safetensors.save(
      dict(zip(names(scored), arrays, strict=True)), {_ABOUT: about})


def load(path: pathlib.Path, like: Any) -> tuple[Any, int]:
  """Returns the arrays of a file as a tree like `like`, and their step."""
  safetensors = paths.need('safetensors', NAME)
  with _reading(path):
    files.opened(path).close()  # a pipe would block
    with safetensors.safe_open(path, 'numpy') as f:
      about = json.loads((f.metadata() or {}).get(_ABOUT, '{}'))
      found = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
  step = about.get('step') if isinstance(about, dict) else None
  if type(step) is not int or not 0 <= step <= COUNT:
    raise UserError(f'{path} was not written by `export`: give a folder that '
                    '`export` wrote.')
  ours = dict(zip(names(like), jax.tree.leaves(like), strict=True))
  difference = checkpoint.difference(
      *({name: (tuple(x.shape), np.dtype(x.dtype).name)
         for name, x in arrays.items()} for arrays in (found, ours)))
  if difference:
    raise UserError(
        f'{path} is not of the config.json beside it: {difference}. Undo the '
        'change of one of them, or export the run again.')
  made = jax.tree.unflatten(jax.tree.structure(like), [
      jax.device_put(found[name], x.sharding) for name, x in ours.items()])
  with _reading(path):
    if checkpoint.checksum(made) != about.get('checksum'):
      raise ValueError('its checksum is wrong')
    for array in found.values():
      foreign.finite(array)
  return made, step


def _reading(path):
  return foreign.reading(
      path, 'get it again, or export the run again', 'is damaged')
