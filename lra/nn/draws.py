"""Random keys that depend on the example, not on the microbatch.

A training step draws noise at several sites: dropout modules, attention
weights, Sinkhorn's scores. Each site has one key for each example:

  key(site, example) = fold_in(fold_in(step's key, hash of the site), place)

`place` is the example's index in the batch before sorting and cutting into
microbatches. The noise therefore does not depend on the size of a microbatch,
on sorting by length or on the devices. The keys of all sites are derived at
once and reach the modules as the variable collection `KEYS`.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from lra import kernels

# Name of this scheme in records. In runs whose record names no scheme, one key
# served a whole microbatch.
SCHEME = 'example'
KEYS = 'keys'
# Random stream of the noise that all examples of a step share.
STEP = 'step'


def row_keys(module: nn.Module, count: int) -> jax.Array:
  """Returns the keys [count] of a batch's rows, for the module that calls it.

  They come from the stream `dropout` if the module has no collection `KEYS`,
  or asks for keys twice in one step.
  """
  known = module.has_variable(KEYS, 'rows')
  looking = module.is_mutable_collection(KEYS)  # `of_step` searches for sites
  if known and not looking:
    return module.get_variable(KEYS, 'rows')
  keys = kernels.row_keys(module.make_rng('dropout'), count)
  if looking and not module.is_initializing():
    module.put_variable(KEYS, 'rows', None if known else keys)
  return keys


def step_key(module: nn.Module) -> jax.Array:
  """Returns a key for noise that all examples share (random features)."""
  return module.make_rng(STEP if module.has_rng(STEP) else 'dropout')


def kept(module: nn.Module, name: str, draw: Callable[[jax.Array], jax.Array],
         anew: bool) -> jax.Array:
  """Returns `draw(key)` of initialisation, or of this step if `anew`.

  The collection 'constants' keeps the value of initialisation under `name`.
  """
  value = module.variable(
      'constants', name, lambda: draw(module.make_rng('params'))).value
  return draw(step_key(module)) if anew else value


def of_step(apply: Callable[[Mapping[str, Any]], Any], key: jax.Array,
            place_B) -> Mapping[str, Any]:
  """Returns the collection `KEYS` of a model for one step.

  `apply` calls `model.apply` with keyword arguments on the training batch; only
  shapes are evaluated. A site with m rows for each example numbers them
  m * place, m * place + 1, ...
  """
  _, found = jax.eval_shape(
      lambda: apply(mutable=[KEYS], rngs={'dropout': key, STEP: key}))
  sites = traverse_util.flatten_dict(dict(found.get(KEYS, {})))
  by_rows = {}
  for path, keys in sorted(sites.items()):
    if keys is None:
      continue  # the module asks for keys more than once
    by_rows.setdefault(keys.shape[0] // len(place_B), []).append(path)
  table = {}
  for rows, paths in by_rows.items():
    hashes = np.array([zlib.crc32('/'.join(path).encode()) for path in paths],
                      np.uint32)
    number_R = (place_B[:, None] * rows + jnp.arange(rows)[None]).reshape(-1)
    site_S = jax.vmap(jax.random.fold_in, (None, 0))(key, hashes)
    keys_SxR = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(
        site_S, number_R)
    table |= dict(zip(paths, keys_SxR, strict=True))
  return traverse_util.unflatten_dict(table)
