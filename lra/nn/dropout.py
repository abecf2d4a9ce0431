"""Dropout with one 16-bit random number per element and one key per example.

`flax.linen.Dropout` uses a word of 32 bits for each element, which is much of a
small model's training step on a CPU. With half a word the dropout rate is a
multiple of 2^-16. On a GPU the backward pass reads one bit for each element.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.nn import draws

LEVELS = 2**16


class Dropout(nn.Module):
  """Sets a share of elements to zero and scales the rest to keep the mean.

  Source: Srivastava et al. 2014, JMLR 15, with the scaling during training.
  With `tied`, all tokens of an example, axis 1, drop the same channels, as in
  the released code of S4 and S5.
  """
  rate: float
  tied: bool = False

  @nn.compact
  def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
    """Returns x, [..., D] of any float dtype; unchanged if `deterministic`."""
    if not self.rate or deterministic:
      return x
    return drop(draws.row_keys(self, len(x)), x, self.rate, self.tied)


def drop(key: jax.Array, x: jax.Array, rate: float,
         tied: bool = False) -> jax.Array:
  """See `Dropout`; `key` is one key of jax.random, or one for each row."""
  threshold = min(round(rate * LEVELS), LEVELS - 1)
  *lead, width = x.shape[1:]
  if tied:
    lead[0] = 1
  share = 1 - threshold / LEVELS
  words = kernels.draw_words(key, len(x), (*lead, -(-width // 2)))
  if kernels.platform() == 'gpu':
    return _dropped(x, _bits(words, threshold), share)
  return _where(_halves(words) >= jnp.uint16(threshold), x, share)


def _where(kept, x, share):
  return jnp.where(
      kept[..., :x.shape[-1]], x / share, 0).astype(x.dtype)


def _halves(words):
  """Splits each word into halves, [..., N] uint32 -> [..., 2 N] uint16."""
  # The halves are neighbours, so sharded tokens stay on their device.
  halves = jax.lax.bitcast_convert_type(words, jnp.uint16)
  return halves.reshape(*words.shape[:-1], -1)


def _bits(words, threshold):
  """Returns whether half-words of uint32 [..., N] reach `threshold`, as bits,
  uint8 [..., ceil(N / 4)]."""
  words = jnp.pad(words, ((0, 0),) * (words.ndim - 1)
                  + ((0, -words.shape[-1] % 4),))
  words = words.reshape(*words.shape[:-1], -1, 4)
  bits = 0
  for i in range(4):
    for j in range(2):
      half = words[..., i] >> 16 if j else words[..., i] & 0xFFFF
      bits |= (half >= threshold).astype(jnp.uint8) << (2 * i + j)
  return bits


def _of_bits(bits):
  """Unpacks bits, [..., N] uint8 -> [..., 8 N] bool."""
  bits = bits[..., None] >> jnp.arange(8, dtype=jnp.uint8) & 1
  return bits.astype(bool).reshape(*bits.shape[:-2], -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _dropped(x, bits, share):
  return _forward(x, bits, share)[0]


def _forward(x, bits, share):
  # Without the barrier XLA would keep the words, 16 times as many bytes.
  bits = jax.lax.optimization_barrier(bits)
  return _where(_of_bits(bits), x, share), bits


def _backward(share, bits, dy):
  # Without the barrier XLA would keep a byte for each element.
  bits = jax.lax.optimization_barrier(bits)
  return _where(_of_bits(bits), dy, share), None


_dropped.defvjp(_forward, _backward)
