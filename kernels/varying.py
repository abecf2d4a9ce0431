"""Arrays of an enclosing `jax.shard_map` that checks what varies over its mesh.

There each array is known to vary over some axes of the mesh, or to be the same
on all devices. A `custom_vjp` must return gradients that vary as its arguments
do, and a scan carries that vary as its results: so an operation first lets all
its arrays vary alike. Where there is no such shard_map nothing changes.
"""

import jax
import jax.numpy as jnp


def alike(tree):
  """The same arrays, all varying over the axes over which any of them does.

  The gradient of one that did not is summed over those axes: `jax.lax.pcast`.
  """
  axes = frozenset().union(*map(_axes, jax.tree.leaves(tree)))
  return jax.tree.map(lambda x: _vary(x, axes), tree)


def zeros(shape, dtype, like):
  """Zeros that vary over the axes over which `like` does."""
  return _vary(jnp.zeros(shape, dtype), _axes(like))


def _vary(x, axes):
  missing = tuple(sorted(axes - _axes(x)))
  return jax.lax.pcast(x, missing, to='varying') if missing else x


def _axes(x):
  """The mesh axes over which x varies; how JAX says so differs by version."""
  kind = jax.typeof(x)
  axes = getattr(kind, 'vma', None)
  if axes is None:
    axes = getattr(getattr(kind, 'manual_axis_type', None), 'varying', None)
  return axes or frozenset()
