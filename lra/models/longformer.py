"""Longformer: a sliding window plus global tokens with their own projections.

The first `num_global` tokens (the CLS token) are global: every query sees them,
and they see every token through separate projections, as in the authors' code.
The LRA release makes no token global. All heads have one dilation; the paper
dilates two heads of its upper layers.

Equation: softmax over { j : |i - j| <= w/2 or j global } of q_i k_j / sqrt(Dh);
  global i: softmax over all j of q'_i k'_j / sqrt(Dh), with values v'_j
Source: Beltagy et al. 2020, arXiv 2004.05150, section 3.1
"""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from lra.models import About
from lra.nn import block_sparse, layers, partials
from lra.nn.block_sparse import PatternMixer
from lra.nn.patterns import sliding_window
from lra.schema import fields

ABOUT = About('sparse', 'O(L w D)')


class Mixer(PatternMixer):
  window: int = fields.count(
      512, 'Size of the window, w. A query sees w // 2 positions on either '
      'side.', low=0)
  dilation: int = fields.count(
      1, 'Distance between neighbouring positions of the window.')
  num_global: int = fields.count(
      1, 'Number of first tokens that see all tokens and that all tokens see.',
      low=0)

  def patterns(self, length):
    radius = min(self.window // 2, length)  # no positions lie beyond the length
    return (sliding_window(
        radius, dilation=self.dilation, global_keys=self.num_global,
        global_queries=self.num_global),)

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    qkv = block_sparse.Heads(*self.project(x_BxLxD))
    pattern, = self.patterns(x_BxLxD.shape[1])
    o_BxLxHxDh = block_sparse.attend(
        qkv, mask_BxL, dataclasses.replace(pattern, global_queries=0))
    if self.num_global:
      o_BxLxHxDh = jnp.concatenate([
          self._global_rows(x_BxLxD, mask_BxL),
          o_BxLxHxDh[:, self.num_global:]], 1)
    return self.merge(o_BxLxHxDh, x_BxLxD)

  def _global_rows(self, x_BxLxD, mask_BxL):
    """Attends from the G global queries to all tokens: [B, G, H, Dh]."""
    # Computes q' (x W) as (q' W^T) x, and sum of weights * (x W) as
    # (sum of weights * x) W. So the keys and values of all positions, which
    # only few queries need, are never formed. Keys have no bias: it would shift
    # all logits of a query by one number.
    q_BxGxHxDh = self.heads(x_BxLxD[:, :self.num_global], 'global_query')
    B, G, H, Dh = q_BxGxHxDh.shape
    D = x_BxLxD.shape[-1]

    def kernel(key, shape):
      return layers.KERNEL_INIT(key, (D, H * Dh)).reshape(shape)

    key_DxHxDh, value_DxHxDh = (
        self.param(name, kernel, (D, H, Dh)).astype(self.dtype)
        for name in ('global_key', 'global_value'))
    q_BxGxHxD = jnp.einsum('bghk,dhk->bghd', q_BxGxHxDh, key_DxHxDh)
    part = partials.partial_softmax(
        q_BxGxHxD.reshape(B, G * H, D), x_BxLxD, x_BxLxD, scale=Dh**-0.5,
        bias=partials.forbid(mask_BxL)[:, None])
    o_BxGxHxD = partials.normalise(part).astype(self.dtype)
    o_BxGxHxDh = jnp.einsum('bghd,dhk->bghk',
                            o_BxGxHxD.reshape(B, G, H, D), value_DxHxDh)
    if self.qkv_bias:
      bias_HxDh = self.param('global_value_bias', nn.initializers.zeros,
                             (H, Dh)).astype(self.dtype)
      any_Bx1x1x1 = mask_BxL.any(1)[:, None, None, None]
      o_BxGxHxDh += jnp.where(any_Bx1x1x1, bias_HxDh, 0)
    return o_BxGxHxDh
