"""Random keys of the rows of a batch, wherever they are."""

import jax
import jax.numpy as jnp

BATCH_AXES = ('data', 'fsdp')  # axes of a mesh that split a batch


def keys(key, count):
  """A key of each row of a batch, which no mesh changes: keys [count].

  Keys that are one of each row already are returned as they are.

  Inside a `jax.shard_map` over axes of the batch the rows are a part of it,
  those of this device; the axes that are split split it in their order.

  Args:
    key: key of jax.random, or keys [count].
    count: how many rows there are here.
  """
  if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim:
    return key
  mesh = jax.sharding.get_abstract_mesh()
  split = manual(mesh)
  axes = tuple(
    axis for axis in BATCH_AXES if axis in split and mesh.shape[axis] > 1
  )
  first = count * jax.lax.axis_index(axes) if axes else 0
  numbers = first + jnp.arange(count)
  return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)


def manual(mesh):
  """The axes of a mesh that an enclosing shard_map has split."""
  return () if mesh.empty else getattr(mesh, 'manual_axes', ())
