"""Explicit ranks and dtypes, as JAX's strict modes require.

Authors of models use JAX_NUMPY_RANK_PROMOTION=raise and
JAX_NUMPY_DTYPE_PROMOTION=strict to find errors. This package must not fail
under them.
"""

import jax.numpy as jnp


def to_rank_of(x, y):
  """Returns x with leading axes of size 1, so that it has the rank of y."""
  return x[(None,) * (y.ndim - x.ndim)]


def at_least_float32(dtype) -> jnp.dtype:
  """Returns float32, or the dtype itself if it is wider."""
  return jnp.dtype(jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype)
