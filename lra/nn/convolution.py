"""Depth-wise convolution: each channel is convolved over positions alone.

Shapes: B batch, L length, C any axes of channels, K width of the convolution.
"""

import jax
import jax.numpy as jnp

from lra.nn import arrays


@jax.custom_vjp
def depthwise(x_BxLxC: jax.Array, weight_KxC: jax.Array) -> jax.Array:
  """Returns y_t = sum_i w_i x_(t + i - K // 2) per channel, zero-padded.

  Sums shifted copies in float32. A grouped convolution takes tens of times as
  long on a CPU. So does autodiff's gradient of the weights, hence the custom
  one below. The result has the dtype of `x`.
  """
  return _weighed(x_BxLxC, weight_KxC, len(weight_KxC) // 2)


def _forward(x_BxLxC, weight_KxC):
  return depthwise(x_BxLxC, weight_KxC), (x_BxLxC, weight_KxC)


def _backward(saved, g_BxLxC):
  x_BxLxC, weight_KxC = saved
  width, length = len(weight_KxC), x_BxLxC.shape[1]
  dx_BxLxC = _weighed(g_BxLxC, weight_KxC[::-1], (width - 1) // 2)
  padded = _pad(x_BxLxC, width, width // 2)

  def gradient(i):
    shifted = jax.lax.dynamic_slice_in_dim(padded, i, length, axis=1)
    return (shifted.astype(jnp.float32) * g_BxLxC.astype(jnp.float32)).sum(
        (0, 1))

  dweight_KxC = jax.lax.map(gradient, jnp.arange(width))
  return dx_BxLxC.astype(x_BxLxC.dtype), dweight_KxC.astype(weight_KxC.dtype)


depthwise.defvjp(_forward, _backward)


def _weighed(x_BxLxC, weight_KxC, before):
  """Returns sum_i w_i x_(t + i - before)."""
  length = x_BxLxC.shape[1]
  padded = _pad(x_BxLxC, len(weight_KxC), before)
  return sum(
      arrays.to_rank_of(weight_C, padded).astype(jnp.float32)
      * padded[:, i:i + length].astype(jnp.float32)
      for i, weight_C in enumerate(weight_KxC)).astype(x_BxLxC.dtype)


def _pad(x_BxLxC, width, before):
  return jnp.pad(x_BxLxC, [(0, 0), (before, width - 1 - before),
                           *[(0, 0)] * (x_BxLxC.ndim - 2)])
