"""Compressive Transformer: own segment, the one before, older ones compressed.

A query sees its own segment up to itself, the whole segment before it, and
summaries of the `memory_segments` segments before both. A summary is projected
to keys and values like any input. Padding counts as zero in a convolution;
means and maxima leave it out.

All memories come from the layer's own input of the same sequence, and gradients
reach them. The paper's memories outlive a training step; it stops these
gradients and trains the convolution by a loss of its own. Its dilated
convolutions, most used memories and relative positions are left out.

Equation: softmax over { j <= i in the segment of i or the one before } and the
  summaries of the R segments before these, of q_i k / sqrt(Dh);
  summary_n = sum_m X_(c n + m) W_m + b, or the mean or maximum of X_(c n + m),
  m = 0 ... c - 1
Source: Rae et al. 2020, arXiv 1911.05507, section 3, Algorithm 1
"""

import flax.linen as nn
import jax.numpy as jnp

from lra.core.errors import UserError
from lra.models import About
from lra.nn import partials
from lra.nn.arrays import cut
from lra.nn.block_sparse import neighbours
from lra.nn.contraction import Dense
from lra.nn.mixer import HeadMixer, MixerTraits
from lra.schema import fields

ABOUT = About('sparse', 'O(L (S + R S / c) D)')


class Mixer(HeadMixer):
  segment_size: int = fields.count(
      128, 'Number of positions in a segment, S, and in its uncompressed '
      'memory. A sequence of up to S tokens is one segment.')
  memory_segments: int = fields.argument(
      4, 'Number of older segments whose summaries a segment sees, R. 0 gives '
      "Transformer-XL's attention.", low=0, high=1024)
  rate: int = fields.count(
      4, 'Number of positions that one summary stands for, c; must divide S.')
  compression: str = fields.argument(
      'convolution', 'How a summary is computed from its positions.',
      choices=('convolution', 'mean', 'max'))

  traits = MixerTraits(causal=True)

  def state_size(self, width: int, length: int) -> int:
    size = min(self.segment_size, length)
    older = min(self.memory_segments, max(-(-length // size) - 2, 0))
    return self.kv_size(
        min(2 * size, length) + older * size // self.rate)

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    if self.segment_size % self.rate:
      raise UserError(
          f'config.model.rate={self.rate} must divide '
          f'config.model.segment_size={self.segment_size}.')
    length = x_BxLxD.shape[1]
    size = min(self.segment_size, length + -length % self.rate)
    fill = [(0, 0), (0, -length % size)]
    mask_BxP = jnp.pad(mask_BxL, fill)
    x_BxPxD = jnp.where(
        mask_BxP[..., None], jnp.pad(x_BxLxD, [*fill, (0, 0)]), 0)
    sources = [(x_BxPxD, mask_BxP)]
    if self.memory_segments:
      sources.append(self._compress(x_BxPxD, mask_BxP))
    # One matmul projects inputs and summaries, which share all weights.
    sizes = [mask.shape[1] for _, mask in sources]
    x_BxExD = jnp.concatenate([x for x, _ in sources], 1)
    k_BxExHxDh, v_BxExHxDh = (self.heads(x_BxExD, name)
                              for name in ('key', 'value'))
    (k_BxPxHxDh, *k_old), (v_BxPxHxDh, *v_old) = (
        jnp.split(y, sizes[:1], axis=1) if self.memory_segments else [y]
        for y in (k_BxExHxDh, v_BxExHxDh))
    blocks = self.heads(x_BxPxD, 'query'), k_BxPxHxDh, v_BxPxHxDh, mask_BxP
    old = (*k_old, *v_old, sources[1][1]) if self.memory_segments else None
    o_BxPxHxDh = _attend(blocks, old, size, self.memory_segments)
    return self.merge(o_BxPxHxDh[:, :length], x_BxLxD)

  def _compress(self, x_BxPxD, mask_BxP):
    """Returns summaries [B, P / c, D] and their mask, bool [B, P / c]."""
    batch, _, width = x_BxPxD.shape
    x_BxNxCxD = x_BxPxD.reshape(batch, -1, self.rate, width)
    mask_BxNxC = mask_BxP.reshape(batch, -1, self.rate)
    there_BxN = mask_BxNxC.any(-1)
    if self.compression == 'convolution':
      x_BxNxE = x_BxNxCxD.reshape(batch, -1, self.rate * width)
      return (Dense(width, dtype=self.dtype, name='compress')(x_BxNxE),
              there_BxN)
    if self.compression == 'mean':
      count_BxNx1 = jnp.maximum(mask_BxNxC.sum(-1, keepdims=True), 1)
      sum_BxNxD = x_BxNxCxD.sum(2, dtype=jnp.float32)  # padding is 0
      return (sum_BxNxD / count_BxNx1).astype(x_BxPxD.dtype), there_BxN
    top_BxNxD = x_BxNxCxD.max(
        2, where=mask_BxNxC[..., None], initial=-jnp.inf)
    return jnp.where(there_BxN[..., None], top_BxNxD, 0), there_BxN


def _attend(blocks, old, size, reach):
  """Attends to segments and old summaries: [B, P, H, Dh]."""
  q_BxPxHxDh, _, _, mask_BxP = blocks
  batch, length, heads, width = q_BxPxHxDh.shape
  before_1x1xSx2S = jnp.tril(
      jnp.ones((size, 2 * size), bool), size)[None, None]

  def one_head(now, past):
    q_BxPxDh, k_BxPxDh, v_BxPxDh = now
    parts = [partials.partial_softmax(
        cut(q_BxPxDh, size), *(neighbours(cut(y, size), (-1, 0))
                               for y in (k_BxPxDh, v_BxPxDh)),
        bias=partials.forbid(before_1x1xSx2S & neighbours(
            cut(mask_BxP, size), (-1, 0))[:, :, None]))]
    if old is not None:
      some = old[2].shape[1] * size // length  # summaries per segment
      offsets = tuple(range(-reach - 1, -1))
      parts.append(partials.partial_softmax(
          cut(q_BxPxDh, size), *(neighbours(cut(y, some), offsets)
                                 for y in past),
          bias=partials.forbid(
              neighbours(cut(old[2], some), offsets)[:, :, None])))
    o_BxNxSxDh = partials.normalise(partials.merge(parts))
    return o_BxNxSxDh.reshape(batch, length, width).astype(v_BxPxDh.dtype)

  num_keys = 2 * size + (0 if old is None else reach * old[2].shape[1] * size
                         // length)
  o_HxBxPxDh = partials.over_heads(
      one_head, tuple(jnp.moveaxis(y, 2, 0) for y in blocks[:3]),
      () if old is None else tuple(jnp.moveaxis(y, 2, 0) for y in old[:2]),
      num_logits=batch * heads * length * num_keys)
  return jnp.moveaxis(o_HxBxPxDh, 0, 2)
