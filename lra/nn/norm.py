"""The norms of an encoder, and LayerNorm with a custom gradient.

Source: Ba, Kiros and Hinton 2016, arXiv 1607.06450, equation 3

  m = mean(x),  r = (mean((x - m)^2) + eps)^(-1/2),  x^ = (x - m) r
  y = x^ scale + bias

The means are over the last axis of each token, and eps is 1e-6 by default. With
g = dy scale, and sums over all tokens, the gradients are

  dx = r (g - mean(g) - x^ mean(g x^)),  dscale = sum(dy x^),  dbias = sum(dy)

The difference mean(x^2) - m^2 would lose the variance of tokens with a large
mean. The backward pass saves m and r of each token, and x, which the residual
sum keeps anyway. On a GPU one Pallas kernel computes a norm beside a residual
sum, and a second one its backward pass, with the gradient of that sum.
"""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.kernels import axes, dispatch, meshes
from lra.nn import arrays

EPS = 1e-6


class LayerNorm(nn.Module):
  """`flax.linen.LayerNorm` with float32 statistics; `eps` is for the variance.

  `dtype` None promotes x and the parameters, here and in the norms below.
  """
  dtype: jnp.dtype | None = None
  eps: float = EPS

  @nn.compact
  def __call__(
      self, x: jax.Array, beside: bool = False,
  ) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Returns the norm of x [..., D] in `dtype`; with `beside` (x, norm).

    Use the returned x in the residual sum: on a GPU one kernel then adds the
    gradients of both paths.
    """
    shape = x.shape[-1:]
    scale_D = self.param('scale', nn.initializers.ones, shape)
    bias_D = self.param('bias', nn.initializers.zeros, shape)
    dtype = self.dtype or jnp.result_type(x, scale_D, bias_D)
    triton = dispatch.triton_module('layer_norm', *shape, x.dtype, dtype)
    if beside and triton is not None and not meshes.splits_tokens():
      pair = lambda *operands: _beside(
          triton, dtype, self.eps, *axes.alike(operands))
      return kernels.over_tokens(pair, pallas=True)(x, scale_D, bias_D)
    y = _normalized(
        self.eps, *axes.alike((x, scale_D, bias_D))).astype(dtype)
    return (x, y) if beside else y


class RMSNorm(nn.RMSNorm):
  """`flax.linen.RMSNorm`, which relies on JAX to promote its dtypes."""

  def __call__(self, x: jax.Array) -> jax.Array:
    with jax.numpy_dtype_promotion('standard'):
      return super().__call__(x)


class ScaleNorm(nn.Module):
  """Divides by the root mean square and multiplies by one number.

    y = g x (mean(x^2) + eps)^(-1/2)

  Source: Nguyen and Salazar 2019, arXiv 1910.05895, section 2.2, with the mean
  instead of the sum as in Mega's released code. Statistics are float32.
  """
  dtype: jnp.dtype | None = None

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    scale = self.param('scale', nn.initializers.ones, ())
    exact = x.astype(arrays.at_least_float32(x.dtype))
    mean = jnp.square(exact).mean(-1, keepdims=True)
    y = exact * (jax.lax.rsqrt(mean + EPS) * scale.astype(exact.dtype))
    return y.astype(self.dtype or jnp.result_type(x, scale))


class BatchNorm(nn.Module):
  """Normalises each channel over the tokens of many examples.

    m = mean(x),  v = mean((x - m)^2)
    y = (x - m) (v + eps)^(-1/2) scale + bias,  eps = 1e-5

  In training, means are over the true tokens of `rows` consecutive rows (0: of
  all rows) on all devices that share the examples. In evaluation, m and v are
  running means, the collection STATS:

    running = momentum running + (1 - momentum) mean over groups of rows

  Statistics are float32. Source: Ioffe and Szegedy 2015, arXiv 1502.03167,
  algorithm 1, with the biased variance as in flax; groups as in Hoffer et al.
  2017, arXiv 1705.08741.
  """
  dtype: jnp.dtype | None = None
  momentum: float = 0.9
  rows: int = 0

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train: bool) -> jax.Array:
    shape = x_BxLxD.shape[-1:]
    scale_D = self.param('scale', nn.initializers.ones, shape)
    bias_D = self.param('bias', nn.initializers.zeros, shape)
    kept = [self.variable(STATS, name, init, shape, jnp.float32)
            for name, init in (('mean', jnp.zeros), ('var', jnp.ones))]
    exact = x_BxLxD.astype(arrays.at_least_float32(x_BxLxD.dtype))
    if train:
      moments, moments_B = _moments(exact, mask_BxL, self.rows)
      if self.is_mutable_collection(STATS):
        for old, new_GxD in zip(kept, moments, strict=True):
          old.value = (self.momentum * old.value
                       + (1 - self.momentum) * new_GxD.mean(0))
    else:
      moments_B = [old.value[None] for old in kept]
    mean, variance = (m[:, None] for m in moments_B)
    factor = jax.lax.rsqrt(variance + BATCH_EPS) * scale_D[None, None]
    y = (exact - mean) * factor + bias_D[None, None]
    return y.astype(self.dtype or jnp.result_type(x_BxLxD, scale_D))


def _moments(x_BxLxD, mask_BxL, rows):
  """Returns (mean, variance) twice.

  The first pair, float32 [G, D], is for the groups of all devices. The second,
  float32 [B, D], is for the group of each row of this device.
  """
  mesh = jax.sharding.get_abstract_mesh()
  axes_ = tuple(a for a in axes.BATCH_AXES
                if a in axes.manual(mesh) and mesh.shape[a] > 1)
  batch = len(x_BxLxD)
  total = batch * math.prod(mesh.shape[a] for a in axes_)
  rows = rows or total
  # Every piece of `piece` consecutive rows lies within one group.
  piece, count = math.gcd(batch, rows), max(total // rows, 1)
  first = batch * jax.lax.axis_index(axes_) if axes_ else 0
  group_P = (first + piece * jnp.arange(batch // piece)) // rows
  weight_BxLx1 = mask_BxL[..., None].astype(x_BxLxD.dtype)
  inside_PxG = jax.nn.one_hot(group_P, count, dtype=x_BxLxD.dtype)

  def total(y_BxLxE):
    sum_BxE = (weight_BxLx1 * y_BxLxE).sum(1)
    sum_PxE = sum_BxE.reshape(-1, piece, sum_BxE.shape[-1]).sum(1)
    sum_GxE = (inside_PxG[..., None] * sum_PxE[:, None]).sum(0)
    return jax.lax.psum(sum_GxE, axes_) if axes_ else sum_GxE

  def of_rows(y_GxD):
    return jnp.repeat(y_GxD[group_P], piece, axis=0)

  tokens_Gx1 = jnp.maximum(total(jnp.ones_like(weight_BxLx1)), 1)
  mean_GxD = total(x_BxLxD) / tokens_Gx1
  variance_GxD = total(
      jnp.square(x_BxLxD - of_rows(mean_GxD)[:, None])) / tokens_Gx1
  moments = mean_GxD, variance_GxD
  return moments, [of_rows(m) for m in moments]


# Collection of the running means of batch norms, as in flax.
STATS = 'batch_stats'
BATCH_EPS = 1e-5  # as in flax and PyTorch


def make(kind: str, dtype: jnp.dtype, name: str, mask_BxL, *, train: bool,
         eps: float = EPS, **batch) -> Callable:
  """Returns a norm, a function of x and `beside`; see `LayerNorm`.

  Kinds are 'layer' with `eps`, 'scale', 'rms', 'batch' with the attributes in
  `batch`, and 'none', which only changes the dtype.
  """
  if kind == 'layer':
    return LayerNorm(dtype=dtype, eps=eps, name=name)
  norm = {
      'scale': lambda x: ScaleNorm(dtype=dtype, name=name)(x),
      'rms': lambda x: RMSNorm(dtype=dtype, name=name)(x),
      'batch': lambda x: BatchNorm(dtype=dtype, name=name, **batch)(
          x, mask_BxL, train=train),
      'none': lambda x: x.astype(dtype)}[kind]
  return lambda x, beside=False: (x, norm(x)) if beside else norm(x)


def standardise(x: jax.Array, eps: float) -> jax.Array:
  """Returns (x - mean) (variance + eps)^(-1/2) of the last axis, in float32."""
  x = x.astype(jnp.float32)
  x -= x.mean(-1, keepdims=True)
  return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + eps)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _beside(triton, dtype, eps, x, scale_D, bias_D):
  return _forward_beside(triton, dtype, eps, x, scale_D, bias_D)[0]


def _forward_beside(triton, dtype, eps, x, scale_D, bias_D):
  y, *statistics = triton.forward(x, scale_D, bias_D, eps, dtype)
  return (x, y), (x, *statistics, scale_D)


def _backward_beside(triton, dtype, eps, saved, cotangents):
  del dtype, eps
  dx, dy = cotangents
  return triton.backward(*saved, dy, dx)


_beside.defvjp(_forward_beside, _backward_beside)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normalized(eps, x, scale_D, bias_D):
  return _forward(eps, x, scale_D, bias_D)[0]


def _forward(eps, x, scale_D, bias_D):
  exact = x.astype(arrays.at_least_float32(x.dtype))
  mean = exact.mean(-1, keepdims=True)
  apart = exact - mean
  inverse = jax.lax.rsqrt(jnp.square(apart).mean(-1, keepdims=True) + eps)
  scale, bias = (arrays.to_rank_of(p, x) for p in (scale_D, bias_D))
  return apart * (inverse * scale) + bias, (x, mean, inverse, scale_D)


def _backward(eps, saved, dy):
  del eps
  x, mean, inverse, scale_D = saved
  unit = (x.astype(mean.dtype) - mean) * inverse
  g = dy * arrays.to_rank_of(scale_D, dy)
  dx = inverse * (g - g.mean(-1, keepdims=True)
                  - unit * (g * unit).mean(-1, keepdims=True))
  tokens = tuple(range(x.ndim - 1))
  return (dx.astype(x.dtype), (dy * unit).sum(tokens).astype(scale_D.dtype),
          dy.sum(tokens).astype(scale_D.dtype))


_normalized.defvjp(_forward, _backward)
