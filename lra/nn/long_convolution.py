"""Convolutions with kernels as long as the sequence, by FFT.

Shapes: B batch, L length, D channels, K taps of a kernel, N exponentials.
"""

import math

import jax
import jax.numpy as jnp


def exponential_sums(weight_DxN: jax.Array, exponent_DxN: jax.Array,
                     taps: int) -> jax.Array:
  """Returns K_d[l] = Re sum_n w_dn exp(e_dn l), float32 [D, taps].

  Writes l as j C + c, with C near the square root of `taps`. The sum is then a
  matmul of w exp(e C j) and exp(e c), without an array [D, N, taps].

  Args:
    weight_DxN, exponent_DxN: both float32, or both complex64.
    taps: number of taps.
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


def convolve(x_BxLxD: jax.Array, forward_DxK: jax.Array,
             reverse_DxK: jax.Array | None = None, *,
             own_twice: bool = True) -> jax.Array:
  """Convolves each channel with a kernel of its own.

    y_t = sum_(s <= t) f_(t - s) x_s + sum_(s >= t) r_(s - t) x_s

  Args:
    x_BxLxD: any float dtype; zero at padding. The FFT is float32.
    forward_DxK: f, float32, at most L taps.
    reverse_DxK: r, like f; None leaves out the second sum.
    own_twice: whether both sums have the term s = t. If False, the second sum
      is over s > t, with weights r_(s - t - 1).

  Returns:
    float32 [B, L, D].
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
