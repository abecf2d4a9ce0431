"""The tokens of a sequence by number, wherever padding stands.

Shapes: B batch, L length.
"""

import jax
import jax.numpy as jnp


def first(mask_BxL: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
  """An order of the positions in which tokens come before padding.

  Args:
    mask_BxL: bool, True = token.

  Returns:
    (order, place, count), int32: order [B, L] has the positions of the tokens,
    then those of padding, each as they stand; place [B, L] is the place of each
    position in it, so that `take` by it undoes `take` by the order; count [B]
    is the number of tokens.
  """
  order_BxL = jnp.argsort(~mask_BxL, axis=1, stable=True).astype(jnp.int32)
  count_B = mask_BxL.sum(1, dtype=jnp.int32)
  place_BxL = jnp.where(
      mask_BxL, jnp.cumsum(mask_BxL, axis=1, dtype=jnp.int32),
      count_B[:, None] + jnp.cumsum(~mask_BxL, axis=1, dtype=jnp.int32)) - 1
  return order_BxL, place_BxL, count_B


def take(x_BxL: jax.Array, index_BxK: jax.Array) -> jax.Array:
  """Positions of [B, L, ...] by number: [B, K, ...]."""
  more = (1,) * (x_BxL.ndim - 2)
  return jnp.take_along_axis(
      x_BxL, index_BxK.reshape(*index_BxK.shape, *more), axis=1)
