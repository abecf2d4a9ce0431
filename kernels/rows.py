"""Random keys of the rows of a batch, independent of the mesh."""

import jax
import jax.numpy as jnp

BATCH_AXES = ('data', 'fsdp')  # axes of a mesh that split a batch


def keys(key, count):
  """Returns a key for each row of a batch on any mesh: keys [count].

  If there is already a key for each row, they are returned unchanged.

  Inside a `jax.shard_map` over axes of the batch, the rows are this device's
  part of the batch; its axes split the batch in their order.

  Args:
    key: key of jax.random, or keys [count].
    count: number of rows on this device.
  """
  if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim:
    return key
  mesh = jax.sharding.get_abstract_mesh()
  split = manual(mesh)
  axes = tuple(axis for axis in BATCH_AXES
               if axis in split and mesh.shape[axis] > 1)
  first = count * jax.lax.axis_index(axes) if axes else 0
  numbers = first + jnp.arange(count)
  return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)


def manual(mesh):
  """Returns the axes of a mesh that an enclosing shard_map has split."""
  return () if mesh.empty else getattr(mesh, 'manual_axes', ())
