"""Infini-attention: attention within segments beside a memory of earlier ones.

The queries of a segment attend to it causally, and read a memory of all
segments before it; a gate per head mixes both. The memory is a matrix per head,
filled by linear attention; while empty it returns 0. The delta rule stores only
the part of a value that the memory does not return for its key yet.

Equation: O = g A_mem + (1 - g) softmax(Q K^T / sqrt(Dh)) V, g = sigmoid(beta),
  A_mem = s(Q) M / (s(Q) z), then M += s(K)^T (V - s(K) M / (s(K) z)),
  z += sum_t s(K_t), s(x) = elu(x) + 1; segment by segment, per head
Source: Munkhdalai et al. 2024, arXiv 2404.07143, eq. 3 to 6
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import About
from lra.nn import arrays, layers
from lra.nn.mixer import HeadMixer, MixerTraits
from lra.schema import fields

ABOUT = About('sparse', 'O(L (S + Dh) D)')

EPS = 1e-6  # added to the memory's normalisers, which start at 0


class Mixer(HeadMixer):
  segment_size: int = fields.count(256, 'Number of positions in a segment, S.')
  delta: bool = fields.argument(
      True, 'Whether the memory stores values by the delta rule.')

  traits = MixerTraits(causal=True)

  def state_size(self, width: int, length: int) -> int:
    head = layers.head_width(self.qkv_width, self.num_heads)
    return (self.kv_size(min(self.segment_size, length))
            + self.qkv_width * (head + 1))

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    batch, length, heads, width = q_BxLxHxDh.shape
    size = min(self.segment_size, length)
    beta_H = self.param('beta', nn.initializers.zeros, (heads,))

    def step(memory, segment):
      q_BxSxHxDh, k_BxSxHxDh, v_BxSxHxDh, mask_BxS = segment
      read_BxSxHxDh = _read(memory, _feature(q_BxSxHxDh))
      near_BxSxHxDh = _attend(q_BxSxHxDh, k_BxSxHxDh, v_BxSxHxDh, mask_BxS)
      gate_1x1xHx1 = jax.nn.sigmoid(beta_H)[None, None, :, None]
      o_BxSxHxDh = (gate_1x1xHx1 * read_BxSxHxDh
                    + (1 - gate_1x1xHx1) * near_BxSxHxDh)
      return (_store(memory, k_BxSxHxDh, v_BxSxHxDh, mask_BxS, self.delta),
              o_BxSxHxDh.astype(self.dtype))

    empty = (jnp.zeros((batch, heads, width, width)),
             jnp.zeros((batch, heads, width)))
    _, o_NxBxSxHxDh = jax.lax.scan(
        jax.checkpoint(step), empty,
        tuple(jnp.moveaxis(arrays.cut(y, size), 1, 0) for y in (
            q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL)))
    return jnp.moveaxis(o_NxBxSxHxDh, 0, 1).reshape(
        batch, -1, heads, width)[:, :length]


def _feature(x):
  return jax.nn.elu(x.astype(jnp.float32)) + 1


def _read(memory, phi_BxSxHxDh):
  m_BxHxDhxDh, z_BxHxDh = memory
  norm_BxSxH = _product('bshd,bhd->bsh', phi_BxSxHxDh, z_BxHxDh) + EPS
  return _product('bshd,bhde->bshe', phi_BxSxHxDh, m_BxHxDhxDh) / (
      norm_BxSxH[..., None])


def _store(memory, k_BxSxHxDh, v_BxSxHxDh, mask_BxS, delta):
  m_BxHxDhxDh, z_BxHxDh = memory
  mask_BxSx1x1 = mask_BxS[:, :, None, None]
  phi_BxSxHxDh = jnp.where(mask_BxSx1x1, _feature(k_BxSxHxDh), 0)
  v_BxSxHxDh = jnp.where(mask_BxSx1x1, v_BxSxHxDh, 0).astype(jnp.float32)
  if delta:
    v_BxSxHxDh -= _read(memory, phi_BxSxHxDh)
  return (m_BxHxDhxDh + _product('bshd,bshe->bhde', phi_BxSxHxDh, v_BxSxHxDh),
          z_BxHxDh + phi_BxSxHxDh.sum(1))


def _attend(q_BxSxHxDh, k_BxSxHxDh, v_BxSxHxDh, mask_BxS):
  """Attends causally within a segment; the result is 0 if no key is allowed."""
  size, width = q_BxSxHxDh.shape[1], q_BxSxHxDh.shape[-1]
  logits_BxHxSxS = width**-0.5 * jnp.einsum(
      'bshd,bthd->bhst', q_BxSxHxDh, k_BxSxHxDh,
      preferred_element_type=jnp.float32)
  seen_BxHxSxS = mask_BxS[:, None, None] & jnp.tril(
      jnp.ones((size, size), bool))[None, None]
  weights_BxHxSxS = jnp.where(seen_BxHxSxS, jax.nn.softmax(
      jnp.where(seen_BxHxSxS, logits_BxHxSxS, -1e30)), 0)
  return jnp.einsum('bhst,bthd->bshd', weights_BxHxSxS.astype(v_BxSxHxDh.dtype),
                    v_BxSxHxDh, preferred_element_type=jnp.float32)


def _product(subscripts, x, y):
  return jnp.einsum(subscripts, x, y, precision='highest')
