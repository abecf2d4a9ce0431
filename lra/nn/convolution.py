"""Convolutions over positions: depth-wise, short, and as long as the sequence.

In all of them each channel is convolved with weights of its own.

Shapes: B batch, L length, D or C channels (one or more axes), K taps of a
kernel, N exponentials.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.kernels import xla
from lra.nn import arrays


def depthwise(x_BxLxC, weight_KxC, before: int | None = None) -> jax.Array:
  """Returns y_t = sum_i w_i x_(t + i - before) per channel, zero-padded.

  Sums shifted copies in float32, because on a CPU a grouped convolution, and
  the gradient of the weights by autodiff, take tens of times as long. `before`
  of the K neighbours come before the token; None means K // 2.
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
  gpu = kernels.platform() == 'gpu'
  if gpu:  # else XLA would compute g again for each tap
    x_BxLxC, g_BxLxC = jax.lax.optimization_barrier((x_BxLxC, g_BxLxC))
  dx_BxLxC = _weighed(g_BxLxC, weight_KxC[::-1], width - 1 - before)
  padded = _pad(x_BxLxC, width, before)

  def gradient(i):
    shifted = jax.lax.dynamic_slice_in_dim(padded, i, length, axis=1)
    return (shifted.astype(jnp.float32) * g_BxLxC.astype(jnp.float32)).sum(
        (0, 1))

  # A loop is faster on a CPU. On a GPU it takes more launches and passes.
  dweight_KxC = jnp.stack([gradient(i) for i in range(width)]) if gpu else (
      jax.lax.map(gradient, jnp.arange(width)))
  return dx_BxLxC.astype(x_BxLxC.dtype), dweight_KxC.astype(weight_KxC.dtype)


_depthwise.defvjp(_forward, _backward)


def _weighed(x_BxLxC, weight_KxC, before):
  length = x_BxLxC.shape[1]
  padded = _pad(x_BxLxC, len(weight_KxC), before)
  return sum(
      arrays.to_rank_of(weight_C, padded).astype(jnp.float32)
      * padded[:, i:i + length].astype(jnp.float32)
      for i, weight_C in enumerate(weight_KxC)).astype(x_BxLxC.dtype)


def _pad(x_BxLxC, width, before):
  return jnp.pad(x_BxLxC, [(0, 0), (before, width - 1 - before),
                           *[(0, 0)] * (x_BxLxC.ndim - 2)])


class ShortConvolution(nn.Module):
  """Depth-wise convolution, causal unless `centred`: [B, L, D] -> [B, L, D].

    y_t = SiLU(sum_i w_i x_(t - K + 1 + i) + b),  i = 0 ... K - 1

  Recurrent mixers use it before their state, for example Mamba (arXiv
  2312.00752, section 3.4). In reverse a token sees the K - 1 tokens after it,
  with the same weights. A centred convolution reads x_(t - K // 2 + i) instead.
  Masked tokens count as 0, and their outputs are 0. Parameters start uniform in
  +-K**-0.5, as in PyTorch.
  """
  width: int = 4
  use_bias: bool = False
  centred: bool = False
  dtype: jnp.dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, reverse: bool = False) -> jax.Array:
    keep_BxLx1 = mask_BxL[..., None]
    x_BxLxD = jnp.where(keep_BxLx1, x_BxLxD, 0)
    kernel_KxD = self.param(
        'kernel', self._init, (self.width, x_BxLxD.shape[-1]))
    y_BxLxD = depthwise(
        x_BxLxD.astype(jnp.float32),
        kernel_KxD[::-1] if reverse else kernel_KxD,
        before=None if self.centred else 0 if reverse else self.width - 1)
    if self.use_bias:
      bias_D = self.param('bias', self._init, x_BxLxD.shape[-1:])
      y_BxLxD += bias_D[None, None]
    y_BxLxD = nn.silu(y_BxLxD).astype(self.dtype)
    return xla.written(jnp.where(keep_BxLx1, y_BxLxD, 0))

  def _init(self, key, shape):
    bound = self.width**-0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class PlainConvolution(nn.Module):
  """Computes y_t = sum_i w_i x_(t - i), i = 0 ... width - 1, in the dtype of x.

  Source: Poli et al. 2023, arXiv 2302.10866, section 3.1.
  """
  width: int

  @nn.compact
  def __call__(self, x_BxLxD):
    weight_KxD = self.param(
        'kernel', nn.initializers.normal(self.width ** -0.5),
        (self.width, x_BxLxD.shape[-1])).astype(x_BxLxD.dtype)
    length = x_BxLxD.shape[1]
    padded = jnp.pad(x_BxLxD, ((0, 0), (self.width - 1, 0), (0, 0)))
    # Shifts and sums: a grouped convolution is far slower on a CPU.
    return sum(
        weight_D[None, None] * padded[:, self.width - 1 - i:][:, :length]
        for i, weight_D in enumerate(weight_KxD))


def under_kernel(taps: int, channels: int, length: int) -> int:
  """Returns how many numbers a convolution with `taps` taps keeps."""
  return min(taps, length) * channels


def exponential_sums(weight_DxN, exponent_DxN, taps: int) -> jax.Array:
  """Returns K_d[l] = Re sum_n w_dn exp(e_dn l), float32 [D, taps].

  Writes l as j C + c, with C near the square root of `taps`. The sum is then a
  matmul of w exp(e C j) and exp(e c), without an array [D, N, taps].
  """
  size = 1 << math.ceil(math.log2(max(taps, 1)) / 2)
  count = -(-taps // size)

  def powers(number, stride):
    lag = jnp.arange(number, dtype=jnp.float32) * stride
    return jnp.exp(exponent_DxN[:, None] * lag[None, :, None].astype(
        exponent_DxN.dtype))

  coarse_DxJxN = weight_DxN[:, None] * powers(count, size)
  fine_DxCxN = powers(size, 1)
  if jnp.iscomplexobj(coarse_DxJxN):
    coarse_DxJxN = jnp.concatenate([coarse_DxJxN.real, -coarse_DxJxN.imag], -1)
    fine_DxCxN = jnp.concatenate([fine_DxCxN.real, fine_DxCxN.imag], -1)
  k_DxJxC = jnp.einsum('djn,dcn->djc', coarse_DxJxN, fine_DxCxN,
                       precision=jax.lax.Precision.HIGHEST)
  return k_DxJxC.reshape(len(weight_DxN), -1)[:, :taps]


def convolve(x_BxLxD, forward_DxK, reverse_DxK: jax.Array | None = None, *,
             own_twice: bool = True) -> jax.Array:
  """Convolves each channel with float32 kernels of at most L taps, by FFT.

    y_t = sum_(s <= t) f_(t - s) x_s + sum_(s >= t) r_(s - t) x_s

  Without r there is no second sum. With `own_twice` False it is over s > t,
  with weights r_(s - t - 1). x is zero at padding; y is float32 [B, L, D].
  """
  length, taps = x_BxLxD.shape[1], forward_DxK.shape[1]
  size = _fft_size(length + taps)
  kernel_DxN = jnp.pad(forward_DxK, ((0, 0), (0, size - taps)))
  if reverse_DxK is not None:
    behind_DxN = jnp.pad(reverse_DxK[:, ::-1], ((0, 0), (size - taps, 0)))
    if own_twice:
      behind_DxN = jnp.roll(behind_DxN, 1, axis=1)
    kernel_DxN = kernel_DxN + behind_DxN
  spectrum_BxFxD = jnp.fft.rfft(x_BxLxD.astype(jnp.float32), n=size, axis=1)
  spectrum_BxFxD *= jnp.fft.rfft(kernel_DxN, axis=1).T[None]
  return jnp.fft.irfft(spectrum_BxFxD, n=size, axis=1)[:, :length]


def _fft_size(least):
  """Returns the smallest 2^i, 3 2^i or 5 2^i that is at least `least`."""
  return min(m << max(0, math.ceil(math.log2(least / m))) for m in (1, 3, 5))
