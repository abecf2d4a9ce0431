"""Ranks and dtypes said outright, as JAX's strict modes want them.

JAX_NUMPY_RANK_PROMOTION=raise and JAX_NUMPY_DTYPE_PROMOTION=strict are aids of
whoever writes a model: nothing of this package may fail under them.
"""

import jax.numpy as jnp


def to_rank_of(x, y):
  """x with axes of size 1 in front, until it has as many axes as y."""
  return x[(None,) * (y.ndim - x.ndim)]


def at_least_float32(dtype) -> jnp.dtype:
  """float32, or a wider float dtype as it is."""
  return jnp.dtype(jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype)
