"""Depth-wise convolution: each channel is convolved with weights of its own.

Shapes: B batch, L length, C channels (one or more axes), K taps.
"""

import functools

import jax
import jax.numpy as jnp

from lra.nn import arrays


def depthwise(x_BxLxC: jax.Array, weight_KxC: jax.Array,
              before: int | None = None) -> jax.Array:
  """Returns y_t = sum_i w_i x_(t + i - before) per channel, zero-padded.

  Sums shifted copies in float32. On a CPU a grouped convolution takes tens of
  times as long, and so does the gradient of the weights by autodiff. Hence the
  custom gradient. The result has the dtype of `x`.

  Args:
    x_BxLxC: any float dtype.
    weight_KxC: weights of K neighbours.
    before: how many of the neighbours come before the token, 0 to K - 1; None
      means K // 2, around the token. K - 1 is a causal convolution.
  """
  if before is None:
    before = len(weight_KxC) // 2
  return _depthwise(before, x_BxLxC, weight_KxC)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _depthwise(before, x_BxLxC, weight_KxC):
  return _weighed(x_BxLxC, weight_KxC, before)


def _forward(before, x_BxLxC, weight_KxC):
  return _weighed(x_BxLxC, weight_KxC, before), (x_BxLxC, weight_KxC)


def _backward(before, saved, g_BxLxC):
  x_BxLxC, weight_KxC = saved
  width, length = len(weight_KxC), x_BxLxC.shape[1]
  dx_BxLxC = _weighed(g_BxLxC, weight_KxC[::-1], width - 1 - before)
  padded = _pad(x_BxLxC, width, before)

  def gradient(i):
    shifted = jax.lax.dynamic_slice_in_dim(padded, i, length, axis=1)
    return (shifted.astype(jnp.float32) * g_BxLxC.astype(jnp.float32)).sum(
        (0, 1))

  dweight_KxC = jax.lax.map(gradient, jnp.arange(width))
  return dx_BxLxC.astype(x_BxLxC.dtype), dweight_KxC.astype(weight_KxC.dtype)


_depthwise.defvjp(_forward, _backward)


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
