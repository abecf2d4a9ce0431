"""Axes of a mesh that split a batch, and over which arrays vary.

Inside a `jax.shard_map` that checks `vma`, each array varies over some axes of
the mesh or is equal on all devices. A `custom_vjp` must return gradients that
vary like its arguments, and a scan needs carries that vary like its results. So
an operation first makes all its arrays vary alike. Elsewhere nothing changes.
"""

import jax
import jax.numpy as jnp

BATCH_AXES = ('data', 'fsdp')  # axes of a mesh that split a batch


def keys(key, count):
  """Returns a key for each row of a batch on any mesh: keys [count].

  Keys [count] are returned unchanged. Inside a `jax.shard_map` over axes of the
  batch, `count` rows are this device's part of it, in the order of the axes.
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


def alike(tree):
  """Returns the arrays, each varying over the axes of any of them.

  The gradient of an array that did not vary over an axis is summed over it.
  """
  axes = frozenset().union(*map(_axes, jax.tree.leaves(tree)))
  return jax.tree.map(lambda x: _vary(x, axes), tree)


def zeros(shape, dtype, like):
  """Returns zeros that vary over the axes over which `like` does."""
  return _vary(jnp.zeros(shape, dtype), _axes(like))


def _vary(x, axes):
  missing = tuple(sorted(axes - _axes(x)))
  return jax.lax.pcast(x, missing, to='varying') if missing else x


def _axes(x):
  """Returns the mesh axes over which x varies, for any JAX version."""
  kind = jax.typeof(x)
  axes = getattr(kind, 'vma', None)
  if axes is None:
    axes = getattr(getattr(kind, 'manual_axis_type', None), 'varying', None)
  return axes or frozenset()
