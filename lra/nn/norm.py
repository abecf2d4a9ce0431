"""LayerNorm with a custom gradient.

Source: Ba, Kiros and Hinton 2016, arXiv 1607.06450, equation 3

  m = mean(x),  r = (max(0, mean(x^2) - m^2) + eps)^(-1/2),  x^ = (x - m) r
  y = x^ scale + bias

over the last axis of each token, eps = 1e-6. With g = dy scale the gradients
are as follows. Means are again over the last axis, sums over all tokens.

  dx = r (g - mean(g) - x^ mean(g x^)),  dscale = sum(dy x^),  dbias = sum(dy)

The backward pass saves x, which the residual sum keeps anyway, and m and
mean(x^2) of each token. Automatic differentiation of the first three lines
reads x and dy more often, because it sums the gradient of x in parts.

On a GPU one Pallas kernel computes a norm beside a residual sum. A second one
computes its backward pass and adds the gradient of x from the residual sum. XLA
would read x once more for the means, and x and dy for scale and bias.
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

import kernels
from kernels import axes, dispatch, meshes
from lra.nn import arrays

EPS = 1e-6


class LayerNorm(nn.Module):
  """Layer normalisation with the parameters of `flax.linen.LayerNorm`.

  Parameters `scale` and `bias` are float32 [D]. Statistics are float32, and
  results equal those of flax.

  Attributes:
    dtype: dtype of the result; None promotes x and the parameters.
  """
  dtype: jnp.dtype | None = None

  @nn.compact
  def __call__(
      self, x: jax.Array, beside: bool = False,
  ) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Returns the norm of x, or x and its norm.

    Args:
      x: [..., D] of any float dtype.
      beside: also return x; use it in place of x for the path beside the norm.
        On a GPU one kernel then adds the gradients of both paths.

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
    y = _normalized(*axes.alike((x, scale_D, bias_D))).astype(dtype)
    return (x, y) if beside else y


class RMSNorm(nn.RMSNorm):
  """`flax.linen.RMSNorm`, which relies on JAX to promote its dtypes."""

  def __call__(self, x: jax.Array) -> jax.Array:
    with jax.numpy_dtype_promotion('standard'):
      return super().__call__(x)


class ScaleNorm(nn.Module):
  """Divides by the root mean square and multiplies by one number.

    y = g x (mean(x^2) + eps)^(-1/2)

  The parameter `scale`, g, starts at 1. Statistics are float32. Source: Nguyen
  and Salazar 2019, arXiv 1910.05895, section 2.2, with the mean instead of the
  sum as in Mega's released code.

  Attributes:
    dtype: dtype of the result; None promotes x and the parameter.
  """
  dtype: jnp.dtype | None = None

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Returns the norm of x, [..., D] of any float dtype."""
    scale = self.param('scale', nn.initializers.ones, ())
    exact = x.astype(arrays.at_least_float32(x.dtype))
    mean = jnp.square(exact).mean(-1, keepdims=True)
    y = exact * (jax.lax.rsqrt(mean + EPS) * scale.astype(exact.dtype))
    return y.astype(self.dtype or jnp.result_type(x, scale))


# Norms of an encoder.
KINDS = ('layer', 'scale', 'rms', 'none')


def make(kind: str, dtype: jnp.dtype, name: str) -> Callable:
  """Returns a norm, a function of x and `beside`; see `LayerNorm`.

  Args:
    kind: one of `KINDS`; `none` returns x in `dtype`.
    dtype: dtype of the result.
    name: name of its parameters.
  """
  if kind == 'layer':
    return LayerNorm(dtype=dtype, name=name)
  norm = {
      'scale': lambda x: ScaleNorm(dtype=dtype, name=name)(x),
      'rms': lambda x: RMSNorm(dtype=dtype, name=name)(x),
      'none': lambda x: x.astype(dtype)}[kind]
  return lambda x, beside=False: (x, norm(x)) if beside else norm(x)




def _pair(triton, dtype, *operands):
  return _beside(triton, dtype, *axes.alike(operands))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _beside(triton, dtype, x, scale_D, bias_D):
  """Returns (x, norm of x in `dtype`), computed by the module `triton`."""
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
  exact = x.astype(arrays.at_least_float32(x.dtype))
  mean = exact.mean(-1, keepdims=True)
  square = jnp.square(exact).mean(-1, keepdims=True)
  scale, bias = (arrays.to_rank_of(p, x) for p in (scale_D, bias_D))
  y = (exact - mean) * (_inverse(mean, square) * scale) + bias
  return y, (x, mean, square, scale_D)


def _inverse(mean, square):
  """Returns 1 / standard deviation of each token."""
  variance = jnp.maximum(0, square - jnp.square(mean))
  return jax.lax.rsqrt(variance + EPS)


def _backward(saved, dy):
  x, mean, square, scale_D = saved
  inverse = _inverse(mean, square)
  unit = (x.astype(mean.dtype) - mean) * inverse
  g = dy * arrays.to_rank_of(scale_D, dy)
  dx = inverse * (g - g.mean(-1, keepdims=True)
                  - unit * (g * unit).mean(-1, keepdims=True))
  tokens = tuple(range(x.ndim - 1))
  return (dx.astype(x.dtype), (dy * unit).sum(tokens).astype(scale_D.dtype),
          dy.sum(tokens).astype(scale_D.dtype))


_normalized.defvjp(_forward, _backward)
