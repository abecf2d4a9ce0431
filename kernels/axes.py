"""Helpers for the axes of a device mesh inside a `jax.shard_map`.

With `check_vma` JAX tracks for each array the mesh axes over which its values
differ ("vary"). Gradients of a `custom_vjp` must vary over the same axes as its
arguments, the carry of a scan like its result. So `alike` comes first in each
operation. Outside such a `jax.shard_map` these functions change nothing.
"""

import jax
import jax.numpy as jnp

BATCH_AXES = ('data', 'fsdp')  # axes of a mesh that split a batch


def keys(key, count):
  """Returns one random key per row of a batch, [count], the same on any mesh.

  An array of keys is returned unchanged. Inside a `jax.shard_map` that splits
  the batch, `count` is the number of rows on this device.
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
  """Returns the mesh axes over which an enclosing shard_map splits arrays."""
  return () if mesh.empty else getattr(mesh, 'manual_axes', ())


def alike(tree):
  """Makes all arrays vary over every mesh axis that any of them varies over.

  The gradient of an array is summed over the axes that are added to it.
  """
  axes = frozenset().union(*map(_axes, jax.tree.leaves(tree)))
  return jax.tree.map(lambda x: _vary(x, axes), tree)


def zeros(shape, dtype, like):
  return _vary(jnp.zeros(shape, dtype), _axes(like))


def _vary(x, axes):
  if jnp.issubdtype(x.dtype, jax.dtypes.extended):
    return x
  missing = tuple(sorted(axes - _axes(x)))
  return jax.lax.pcast(x, missing, to='varying') if missing else x


def _axes(x):
  """Returns the mesh axes over which x varies, for any JAX version."""
  kind = jax.typeof(x)
  axes = getattr(kind, 'vma', None)
  if axes is None:
    axes = getattr(getattr(kind, 'manual_axis_type', None), 'varying', None)
  return axes or frozenset()
