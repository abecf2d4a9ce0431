"""Arrays inside a `jax.shard_map` that checks the axes over which they vary.

In it each array varies over some axes of the mesh or is equal on all devices. A
`custom_vjp` must return gradients that vary like its arguments, and a scan
needs carries that vary like its results. So an operation first makes all its
arrays vary alike. Outside such a shard_map nothing changes.
"""

import jax
import jax.numpy as jnp


def alike(tree):
  """Returns the arrays, each varying over the axes of any of them.

  The gradient of an array that did not vary over an axis is summed over it:
  `jax.lax.pcast`.
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
