"""Additive attention: queries and keys are added, not multiplied.

The logit of a pair is a learned weighted sum of the tanh of query plus key;
each head has weights of its own. Memory is linear in L: keys come in tiles, and
a tile's logits are computed again in the backward pass. Time is that of Dh tanh
for each pair and head, where others have Dh products. The paper's one query is
a decoder's state; here every token is one.

Equation: softmax_j(w_h . tanh(q_i + k_j)) v_j per head h, then an output
  projection
Source: Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2
"""

import jax
import jax.numpy as jnp

from lra.nn import layers, partials
from lra.nn.mixer import HeadMixer

FAMILY = 'dense'
COST = 'O(L^2 D) time with a tanh each, O(L) memory'
GROWTH = {'time': 2, 'memory': 1}
TILE = 64  # queries and keys of a tile


class Mixer(HeadMixer):
  """Additive attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `HeadMixer`.

  Raises:
    UserError: the heads do not divide the width.
  """

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    """See `HeadMixer.mix`."""
    weight_HxDh = self.param(
        'score', layers.KERNEL_INIT, q_BxLxHxDh.shape[2:])
    return attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh,
                  weight_HxDh.astype(self.dtype), mask_BxL)


def attend(q_BxLxHxDh, k_BxSxHxDh, v_BxSxHxDv, weight_HxDh, mask_BxS,
           tile: int = TILE):
  """softmax_j(w . tanh(q_i + k_j)) v_j: [B, L, H, Dv] in the dtype of `v`.

  Args:
    q_BxLxHxDh, k_BxSxHxDh, v_BxSxHxDv: in one dtype; sums are float32.
    weight_HxDh: w of each head.
    mask_BxS: bool, True = key takes part; a sequence without any gives zeros.
    tile: the most rows and columns of a tile.
  """
  B, L, H, _ = q_BxLxHxDh.shape
  q_NxBxHxIxDh = _tiles(q_BxLxHxDh, tile)
  k_MxBxHxJxDh, v_MxBxHxJxDv = (_tiles(x, tile) for x in (
      k_BxSxHxDh, v_BxSxHxDv))
  mask_MxBxJ = _tiles(mask_BxS[..., None, None], tile)[:, :, 0, :, 0]

  @jax.checkpoint
  def one_tile(q_BxHxIxDh, k_BxHxJxDh, v_BxHxJxDv, mask_BxJ):
    hidden_BxHxIxJxDh = jnp.tanh(
        q_BxHxIxDh[:, :, :, None] + k_BxHxJxDh[:, :, None])
    logits_BxHxIxJ = jnp.einsum(
        'bhijd,hd->bhij', hidden_BxHxIxJxDh, weight_HxDh,
        preferred_element_type=jnp.float32)
    return partials.weigh(
        logits_BxHxIxJ + partials.forbid(mask_BxJ)[:, None, None], v_BxHxJxDv)

  @jax.checkpoint
  def one_block(q_BxHxIxDh):

    def add(part, keys):
      return partials.merge([part, one_tile(q_BxHxIxDh, *keys)]), None

    shape = q_BxHxIxDh.shape[:-1]
    start = partials.Partial(
        jnp.zeros((*shape, v_BxSxHxDv.shape[-1])),
        jnp.full(shape, partials.FORBIDDEN / 2), jnp.zeros(shape))
    part, _ = jax.lax.scan(
        add, start, (k_MxBxHxJxDh, v_MxBxHxJxDv, mask_MxBxJ))
    return partials.normalise(part).astype(v_BxSxHxDv.dtype)

  o_NxBxHxIxDv = jax.lax.map(one_block, q_NxBxHxIxDh)
  o_BxNxIxHxDv = o_NxBxHxIxDv.transpose(1, 0, 3, 2, 4)
  return o_BxNxIxHxDv.reshape(B, -1, H, v_BxSxHxDv.shape[-1])[:, :L]


def _tiles(x_BxLxHxD, tile):
  """[N, B, H, I, D]: N tiles of I positions, zero (False) padded."""
  B, L, H, D = x_BxLxHxD.shape
  rows = -(-L // -(-L // tile))
  x = jnp.pad(x_BxLxHxD, ((0, 0), (0, -L % rows), (0, 0), (0, 0)))
  return x.reshape(B, -1, rows, H, D).transpose(1, 0, 3, 2, 4)
