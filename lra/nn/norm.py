"""LayerNorm with a gradient of its own.

Source: Ba, Kiros and Hinton 2016, arXiv 1607.06450, equation 3

  m = mean(x),  r = (max(0, mean(x^2) - m^2) + eps)^(-1/2),  x^ = (x - m) r
  y = x^ scale + bias

over the last axis of each token, eps = 1e-6. With g = dy scale the gradients
are, means again over the last axis and sums over all tokens,

  dx = r (g - mean(g) - x^ mean(g x^)),  dscale = sum(dy x^),  dbias = sum(dy)

The backward pass saves x, which the residual sum keeps anyway, and m and
mean(x^2) of each token. Automatic differentiation of the first three lines
passes over x and dy more often: it adds up the same gradient of x in parts.

On a GPU a norm beside a residual sum is one Pallas kernel forward and one
backward, which also adds the gradient that x gets from the sum. XLA would pass
over x once more for the means, and over x and dy for scale and bias.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

import kernels
from kernels import dispatch, meshes, varying
from lra.nn import broadcast

EPS = 1e-6


class LayerNorm(nn.Module):
  """`flax.linen.LayerNorm`: the same parameters, `scale` and `bias`, float32
  [D], the same statistics in float32 and the same results.

  Attributes:
    dtype: of the result; None for that of x and the parameters together.
  """
  dtype: jnp.dtype | None = None

  @nn.compact
  def __call__(
      self, x: jax.Array, beside: bool = False,
  ) -> jax.Array | tuple[jax.Array, jax.Array]:
    """The norm of x, or x and its norm.

    Args:
      x: [..., D] of any float dtype.
      beside: also return x, to be used instead of x where it takes another
        way beside the norm. On a GPU the gradients of both ways are then
        added where that of the norm is computed.

    Returns:
      The norm, [..., D] in `dtype`; with `beside` the pair (x, norm).
    """
    shape = x.shape[-1:]
    scale_D = self.param('scale', nn.initializers.ones, shape)
    bias_D = self.param('bias', nn.initializers.zeros, shape)
    dtype = self.dtype or jnp.result_type(x, scale_D, bias_D)
    triton = dispatch.triton_module('layer_norm', *shape, x.dtype, dtype)
    if beside and triton is not None and not meshes.splits_tokens():
      pair = functools.partial(_pair, triton, dtype)
      return kernels.over_tokens(pair, pallas=True)(x, scale_D, bias_D)
    y = _normalized(*varying.alike((x, scale_D, bias_D))).astype(dtype)
    return (x, y) if beside else y


class RMSNorm(nn.RMSNorm):
  """`flax.linen.RMSNorm`, which relies on JAX to promote its dtypes."""

  def __call__(self, x: jax.Array) -> jax.Array:
    """See `flax.linen.RMSNorm`."""
    with jax.numpy_dtype_promotion('standard'):
      return super().__call__(x)


def _pair(triton, dtype, *operands):
  return _beside(triton, dtype, *varying.alike(operands))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _beside(triton, dtype, x, scale_D, bias_D):
  """(x, norm of x in `dtype`) by the kernels of a module."""
  return _forward_beside(triton, dtype, x, scale_D, bias_D)[0]


def _forward_beside(triton, dtype, x, scale_D, bias_D):
  y, *statistics = triton.forward(x, scale_D, bias_D, EPS, dtype)
  return (x, y), (x, *statistics, scale_D)


def _backward_beside(triton, dtype, saved, cotangents):
  del dtype
  dx, dy = cotangents
  return triton.backward(*saved, dy, dx)


_beside.defvjp(_forward_beside, _backward_beside)


@jax.custom_vjp
def _normalized(x, scale_D, bias_D):
  return _forward(x, scale_D, bias_D)[0]


def _forward(x, scale_D, bias_D):
  exact = x.astype(broadcast.at_least_float32(x.dtype))
  mean = exact.mean(-1, keepdims=True)
  square = jnp.square(exact).mean(-1, keepdims=True)
  scale, bias = (broadcast.to_rank_of(p, x) for p in (scale_D, bias_D))
  y = (exact - mean) * (_inverse(mean, square) * scale) + bias
  return y, (x, mean, square, scale_D)


def _inverse(mean, square):
  """1 over the standard deviation of each token."""
  variance = jnp.maximum(0, square - jnp.square(mean))
  return jax.lax.rsqrt(variance + EPS)


def _backward(saved, dy):
  x, mean, square, scale_D = saved
  inverse = _inverse(mean, square)
  unit = (x.astype(mean.dtype) - mean) * inverse
  g = dy * broadcast.to_rank_of(scale_D, dy)
  dx = inverse * (g - g.mean(-1, keepdims=True)
                  - unit * (g * unit).mean(-1, keepdims=True))
  tokens = tuple(range(x.ndim - 1))
  return (dx.astype(x.dtype), (dy * unit).sum(tokens).astype(scale_D.dtype),
          dy.sum(tokens).astype(scale_D.dtype))


_normalized.defvjp(_forward, _backward)
