"""ETC: a window with relative positions, and global tokens, in four pieces.

Long tokens see the long tokens in their window and all global tokens; global
tokens see everything. Each key adds a learned vector for its relation to the
query: between tokens of one kind for the distance, clipped at k, else one
vector. The paper adds global tokens to the input, for example one per sentence;
here the first tokens are global.

The authors' code has `sharing` sides, adds a learned number for each relation
and head to the logits, and starts the vectors with a standard deviation of 0.5;
here it is 0.02.

Equation: softmax over { j : |i - j| <= r or j global } of
  q_i (k_j + a_ij) / sqrt(Dh), all j if i is global; a_ij = a_clip(j - i, k)
  between tokens of one kind
Source: Ainslie et al. 2020, arXiv 2004.08483, sections 3.1 and 3.2
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra.models import About
from lra.nn import layers, partials
from lra.nn.block_sparse import (
  Heads,
  from_blocks,
  neighbours,
  to_blocks,
  window,
)
from lra.nn.mixer import HeadMixer
from lra.nn.patterns import sliding_window
from lra.schema import fields

ABOUT = About('sparse', 'O(L r D)')
# (queries, keys) of each piece.
PIECES = (('long', 'long'), ('long', 'global'),
          ('global', 'long'), ('global', 'global'))


class Mixer(HeadMixer):
  radius: int = fields.count(
      84, 'Number of positions that a long token sees on either side, r.',
      low=0)
  num_global: int = fields.count(
      1, 'Number of first tokens that form the global input.', low=0)
  max_distance: int = fields.count(
      12, 'Largest distance with a vector of its own, k; larger distances '
      'share that vector.', low=0)
  sharing: str = fields.argument(
      'all', 'Which of the four pieces of attention share projections: `all`, '
      '`sides` (the pieces of one kind of query) or `none`.',
      choices=('all', 'sides', 'none'))

  def patterns(self, length):
    return (sliding_window(
        min(self.radius, length), global_keys=self.num_global,
        global_queries=self.num_global),)

  def state_size(self, width: int, length: int) -> int:
    pattern, = self.patterns(length)
    return self.kv_size(pattern.kept(length))

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    pieces = self._pieces(x_BxLxD)
    labels = {side: self._labels(side, pieces['long', 'long'].q)
              for side in ('long', 'global')}
    B, L, H, _ = pieces['long', 'long'].q.shape

    def one_head(pieces, labels):
      return jax.vmap(lambda pieces, mask_L: _sequence(
          pieces, labels, mask_L, min(self.radius, L)))(pieces, mask_BxL)

    o_HxBxLxDh = partials.over_heads(
        one_head,
        jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), pieces),
        jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), labels),
        num_logits=B * H * L * (2 * self.radius + 1 + self.num_global))
    return self.merge(jnp.moveaxis(o_HxBxLxDh, 0, 2), x_BxLxD)

  def _pieces(self, x_BxLxD):
    """Returns queries, keys and values of each of `PIECES`."""
    inputs = {'long': x_BxLxD, 'global': x_BxLxD[:, :self.num_global]}
    heads = self.num_heads, layers.head_width(self.qkv_width, self.num_heads)
    made = {}

    def project(side, name):
      if name not in made:
        made[name] = layers.Projection(
            x_BxLxD.shape[-1:], heads, self.dtype, self.qkv_bias, name=name)
      return made[name](inputs[side])

    def piece(queries, keys):
      own = '' if self.sharing == 'all' else f'{queries}_'
      own_keys = f'{own}{keys}_' if self.sharing == 'none' else own
      return Heads(project(queries, f'{own}query'),
                   project(keys, f'{own_keys}key'),
                   project(keys, f'{own_keys}value'))

    return {pair: piece(*pair) for pair in PIECES}

  def _labels(self, side, q_BxLxHxDh):
    """Returns the vectors a of queries of one side, [2 k + 2, H, Dh]: those of
    the distances -k ... k, and one for keys of the other side."""
    shape = (2 * self.max_distance + 2, *q_BxLxHxDh.shape[2:])
    return self.param(f'{side}_labels', nn.initializers.normal(0.02),
                      shape).astype(self.dtype)


def _sequence(pieces, labels, mask_L, radius):
  """Attends in one head of one sequence: [L, Dh]."""
  v_LxDh = pieces['long', 'long'].v
  M = len(pieces['global', 'global'].q)
  long_L = mask_L & (np.arange(len(mask_L)) >= M)
  parts = [_window(pieces['long', 'long'], labels['long'][:-1], long_L, radius)]
  if not M:
    return partials.normalise(parts[0]).astype(v_LxDh.dtype)
  parts.append(_other(pieces['long', 'global'], labels['long'], mask_L[:M]))
  rows_LxDh = partials.normalise(partials.merge(parts))
  top_MxDh = partials.normalise(partials.merge([
      _globals(pieces['global', 'global'], labels['global'][:-1], mask_L[:M]),
      _other(pieces['global', 'long'], labels['global'], long_L)]))
  return jnp.concatenate([top_MxDh, rows_LxDh[M:]]).astype(v_LxDh.dtype)


def _scores(q, labels_VxDh):
  return q.shape[-1]**-0.5 * jnp.einsum(
      '...d,vd->...v', q, labels_VxDh, preferred_element_type=jnp.float32)


def _other(qkv, labels_VxDh, mask_K):
  """Attends to keys of the other side, which all have the last label."""
  score_Qx1 = _scores(qkv.q, labels_VxDh[-1:])
  return partials.partial_softmax(
      *qkv, bias=score_Qx1 + partials.forbid(mask_K)[None])


def _globals(qkv, labels_VxDh, mask_M):
  i, k = np.arange(len(mask_M)), len(labels_VxDh) // 2
  label_MxM = np.clip(i - i[:, None], -k, k) + k
  score_MxM = jnp.take_along_axis(
      _scores(qkv.q, labels_VxDh), label_MxM, -1)
  return partials.partial_softmax(
      *qkv, bias=score_MxM + partials.forbid(mask_M)[None])


def _window(qkv, labels_VxDh, mask_L, radius):
  pattern = sliding_window(radius)
  offsets, apart_IxK = window(pattern, len(mask_L))
  q, k, v, mask = (to_blocks(x, pattern.block) for x in (*qkv, mask_L))
  allowed_ExNxIxK = neighbours(mask, offsets)[:, :, None] & (
      np.abs(apart_IxK) <= radius)[None, None]
  part = partials.partial_softmax(
      q, neighbours(k, offsets), neighbours(v, offsets),
      bias=_by_distance(_scores(q, labels_VxDh), apart_IxK) +
      partials.forbid(allowed_ExNxIxK))
  return jax.tree.map(lambda x: from_blocks(x, len(mask_L)), part)


def _by_distance(scores_xIxV, apart_IxK):
  """Maps scores of labels to scores of pairs, [..., I, V] -> [..., I, K]."""
  # From one row (query) to the next, all distances fall by one. So one row with
  # all distances is repeated, and reshaping shifts each row one place further.
  # Gathering would be slow on a CPU.
  block, keys = apart_IxK.shape
  k = scores_xIxV.shape[-1] // 2
  first, last = apart_IxK[-1, 0], apart_IxK[0, -1]
  low, high = max(first, -k), min(last, k)
  lead = scores_xIxV.shape[:-1]
  row = jnp.concatenate([
      jnp.broadcast_to(scores_xIxV[..., :1], (*lead, low - first)),
      scores_xIxV[..., low + k:high + k + 1],
      # One entry more than there are distances, so that rows shift.
      jnp.broadcast_to(scores_xIxV[..., -1:], (*lead, last - high + 1))], -1)
  flat = row.reshape(*lead[:-1], -1)[..., block - 1:-1]
  return flat.reshape(*lead, -1)[..., :keys]
