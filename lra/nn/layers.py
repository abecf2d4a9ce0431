"""Projections shared by the mixers.

Call these functions inside a compact module: they create its submodules, so
that all mixers share names and initial values of projections.

Shapes: B batch, L length, D model width, H heads, Dh head width.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.core.errors import UserError
from lra.kernels import xla
from lra.nn import arrays, contraction

KERNEL_INIT = nn.initializers.xavier_uniform()
QKV = ('query', 'key', 'value')


class Projection(nn.Module):
  """A dense layer from axes `ins` to axes `outs`.

  These are the sizes of the last axes of input and output. Parameters have the
  shapes, names and initial values of `nn.DenseGeneral`: kernel float32 [*ins,
  *outs], bias float32 [*outs]. Accelerators multiply the flat [B, L, ins] by
  [ins, outs], so XLA has no reason to transpose the result.
  """
  ins: tuple[int, ...]
  outs: tuple[int, ...]
  dtype: jnp.dtype
  use_bias: bool = True
  gain: float = 1.0  # factor of the initial kernel

  def setup(self):
    flat = math.prod(self.ins), math.prod(self.outs)
    self.kernel = self.param('kernel', lambda key: (
        self.gain * KERNEL_INIT(key, flat)).reshape(*self.ins, *self.outs))
    self.bias = (self.param('bias', nn.initializers.zeros, self.outs)
                 if self.use_bias else None)

  def weights(self) -> tuple[jax.Array, jax.Array | None]:
    """Returns the flat kernel [ins, outs], and bias [outs] or None."""
    bias = None if self.bias is None else self.bias.reshape(-1)
    return self.kernel.reshape(math.prod(self.ins), -1), bias

  def __call__(self, x: jax.Array) -> jax.Array:
    if kernels.platform() == 'cpu':  # flat matmuls have slower gradients there
      return self._many_axes(x)
    kernel, bias = self.weights()
    y = product(x.reshape(*x.shape[:2], -1), kernel, bias, self.dtype)
    return y.reshape(*y.shape[:2], *self.outs)

  def _many_axes(self, x):
    axes = range(x.ndim - len(self.ins), x.ndim), range(len(self.ins))
    y = jax.lax.dot_general(
        x.astype(self.dtype), self.kernel.astype(self.dtype), (axes, ((), ())))
    y = xla.written(y)
    return y if self.bias is None else y + arrays.to_rank_of(
        self.bias.astype(self.dtype), y)


def product(x_BxLxD, kernel_DxE, bias_E: jax.Array | None,
            dtype: jnp.dtype) -> jax.Array:
  """Returns x W + b, [B, L, E] in `dtype`."""
  y_BxLxE = contraction.product(x_BxLxD.astype(dtype), kernel_DxE)
  return y_BxLxE if bias_E is None else y_BxLxE + bias_E.astype(dtype)


def head_width(width: int, num_heads: int) -> int:
  """Returns Dh; raises a UserError if the heads do not divide the width."""
  if num_heads < 1 or width % num_heads:
    raise UserError(
        f'A width of {width} cannot be split into {num_heads} heads: choose '
        'config.model.num_heads and qkv_width so that it divides.')
  return width // num_heads


def split_heads(x_BxLxD, num_heads: int) -> jax.Array:
  """Slices the last axis into heads: [B, L, D] -> [B, L, H, D / H]."""
  *rest, width = x_BxLxD.shape
  return x_BxLxD.reshape(*rest, num_heads, head_width(width, num_heads))


def project_heads(x_BxLxD, num_heads: int, width: int, dtype: jnp.dtype,
                  name: str, use_bias: bool = True) -> jax.Array:
  """Projects and splits into heads: [B, L, D] -> [B, L, H, Dh]."""
  heads = num_heads, head_width(width, num_heads)
  return Projection(x_BxLxD.shape[-1:], heads, dtype, use_bias,
                    name=name)(x_BxLxD)


def project_packed(x_BxLxD, num_heads: int, qkv_width: int, dtype: jnp.dtype,
                   use_bias: bool = True) -> tuple[jax.Array, jax.Array | None]:
  """Computes queries, keys and values in one matmul, for packed kernels.

  The parameters are those of three `project_heads`. Returns qkv [B, L, 3, H,
  Dh] in `dtype`, and biases float32 [3, H, Dh] or None. The biases are already
  added to qkv, but as constants: the kernel computes their gradient; see
  `lra.kernels.linear_attention_packed`.
  """
  heads = num_heads, head_width(qkv_width, num_heads)
  weights, biases = zip(*(
      Projection(x_BxLxD.shape[-1:], heads, dtype, use_bias, name=name)
      .weights() for name in QKV), strict=True)
  bias_E = jnp.concatenate(biases) if use_bias else None
  qkv_BxLxE = product(x_BxLxD, jnp.concatenate(weights, axis=1),
                      jax.lax.stop_gradient(bias_E), dtype)
  qkv = qkv_BxLxE.reshape(*x_BxLxD.shape[:2], 3, *heads)
  return qkv, None if bias_E is None else bias_E.reshape(3, *heads)


def merge_heads_and_project(o_BxLxHxDh, features: int, dtype: jnp.dtype,
                            use_bias: bool = True,
                            gain: float = 1.0) -> jax.Array:
  """Applies the output projection: [B, L, H, Dh] -> [B, L, D]."""
  return Projection(o_BxLxHxDh.shape[2:], (features,), dtype, use_bias, gain,
                    name='out')(o_BxLxHxDh)


def unit(x: jax.Array) -> jax.Array:
  """Scales vectors to length 1 over the last axis, in float32."""
  # A vector shorter than 1e-6 stays unchanged: dividing by its length would
  # multiply its gradient by more than a million.
  square = jnp.square(x.astype(jnp.float32)).sum(-1, keepdims=True)
  factor = jax.lax.rsqrt(jnp.where(square > 1e-12, square, 1.0))
  exact = arrays.at_least_float32(x.dtype)
  return (x.astype(exact) * factor.astype(exact)).astype(x.dtype)
