"""Functions that order tokens, and that make ranks and dtypes explicit.

Authors of models use JAX_NUMPY_RANK_PROMOTION=raise and
JAX_NUMPY_DTYPE_PROMOTION=strict to find errors. This package must not fail
under them.

Shapes: B batch, L length.
"""

import jax
import jax.numpy as jnp


def to_rank_of(x, y):
  """Returns x with leading axes of size 1, so that it has the rank of y."""
  return x[(None,) * (y.ndim - x.ndim)]


def at_least_float32(dtype) -> jnp.dtype:
  """Returns float32, or the dtype itself if it is wider."""
  return jnp.dtype(jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype)


def tokens_first(mask_BxL) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns (order, place, count), int32, with tokens before padding.

  order [B, L] lists the positions of the tokens and then those of padding, each
  in increasing order. place [B, L] is the index of each position in `order`, so
  `take` by place inverts `take` by order. count [B] is the number of tokens.
  """
  order_BxL = jnp.argsort(~mask_BxL, axis=1, stable=True).astype(jnp.int32)
  count_B = mask_BxL.sum(1, dtype=jnp.int32)
  place_BxL = jnp.where(
      mask_BxL, jnp.cumsum(mask_BxL, axis=1, dtype=jnp.int32),
      count_B[:, None] + jnp.cumsum(~mask_BxL, axis=1, dtype=jnp.int32)) - 1
  return order_BxL, place_BxL, count_B


def take(x_BxL, index_BxK) -> jax.Array:
  """Selects positions of [B, L, ...] by index: [B, K, ...]."""
  more = (1,) * (x_BxL.ndim - 2)
  return jnp.take_along_axis(
      x_BxL, index_BxK.reshape(*index_BxK.shape, *more), axis=1)


def cut(x_BxL, size: int) -> jax.Array:
  """Cuts into zero-filled pieces: [B, L, ...] -> [B, N, size, ...]."""
  x_BxL = jnp.pad(x_BxL, [(0, 0), (0, -x_BxL.shape[1] % size),
                          *[(0, 0)] * (x_BxL.ndim - 2)])
  return x_BxL.reshape(len(x_BxL), -1, size, *x_BxL.shape[2:])


def token_before(x_BxL, mask_BxL, reverse: bool = False) -> jax.Array:
  """Returns x [B, L, ...] at the nearest token before each position, else 0.

  Padding is skipped. With `reverse`, it is the nearest token after a position.
  """
  length = mask_BxL.shape[1]
  place_1xL = jnp.arange(length, dtype=jnp.int32)[None]
  if reverse:
    near_BxL = jax.lax.cummin(
        jnp.where(mask_BxL, place_1xL, length), axis=1, reverse=True)
    index_BxL = jnp.pad(near_BxL[:, 1:], [(0, 0), (0, 1)],
                        constant_values=length)
  else:
    near_BxL = jax.lax.cummax(jnp.where(mask_BxL, place_1xL, -1), axis=1)
    index_BxL = jnp.pad(near_BxL[:, :-1], [(0, 0), (1, 0)], constant_values=-1)
  found_BxL = (index_BxL >= 0) & (index_BxL < length)
  found_BxL1 = found_BxL.reshape(*found_BxL.shape, *(1,) * (x_BxL.ndim - 2))
  return jnp.where(
      found_BxL1, take(x_BxL, jnp.clip(index_BxL, 0, length - 1)), 0)
