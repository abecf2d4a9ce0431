"""Random keys of the rows of a batch, wherever they are."""

import jax
import jax.numpy as jnp

BATCH_AXES = ('data', 'fsdp')  # axes of a mesh that split a batch


def keys(key, count):
  """A key of each row of a batch, which no mesh changes: keys [count].

  Inside a `jax.shard_map` over `data` the rows are a part of the batch, those
  of this device.

  Args:
    key: key of jax.random.
    count: how many rows there are here.
  """
  first = 0
  if BATCH_AXES[0] in manual(jax.sharding.get_abstract_mesh()):
    first = count * jax.lax.axis_index(BATCH_AXES[0])
  numbers = first + jnp.arange(count)
  return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)


def manual(mesh):
  """The axes of a mesh that an enclosing shard_map has split."""
  return () if mesh.empty else getattr(mesh, 'manual_axes', ())
