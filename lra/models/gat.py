"""Graph attention: weights from two scores per token, among near tokens.

The graph is the chain of tokens: a token's neighbours are the tokens at most w
positions away, and itself. As in the paper's hidden layers, the heads are
concatenated after an ELU, and no output projection follows. The released code
drops weights and values at random; here only the encoder has dropout.

Equation: concat_h ELU(sum_j a_ij W_h x_j + b_h), a_ij = softmax over
  { j : |i - j| <= w } of LeakyReLU(s_h . W_h x_i + t_h . W_h x_j), slope 0.2
Source: Velickovic et al. 2018, arXiv 1710.10903, eq. 1 to 5
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra.models import About
from lra.nn import layers, partials
from lra.nn.block_sparse import from_blocks, neighbours, to_blocks, window
from lra.nn.mixer import BaseMixer
from lra.nn.patterns import sliding_window
from lra.schema import fields

ABOUT = About('sparse', 'O(L D^2 + L w D)')

SLOPE = 0.2  # of LeakyReLU below 0


class Mixer(BaseMixer):
  num_heads: int = 8
  radius: int = fields.count(
      256, 'Number of positions that a token sees on either side, w.', low=0)

  def state_size(self, width: int, length: int) -> int:
    kept = sliding_window(min(self.radius, length)).kept(length)
    return kept * (width + self.num_heads)

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    del train  # nothing is random
    H, D = self.num_heads, x_BxLxD.shape[-1]
    Dh = layers.head_width(D, H)
    v_BxLxHxDh = layers.project_heads(
        x_BxLxD, H, D, self.dtype, 'value', use_bias=False)
    # With these deviations a sum of Dh products has a variance near 1.
    start = nn.initializers.normal(Dh**-0.5)
    own_BxLxH, other_BxLxH = (
        jnp.einsum('blhd,hd->blh', v_BxLxHxDh.astype(jnp.float32),
                   self.param(name, start, (H, Dh)))
        for name in ('own_score', 'other_score'))
    o_BxLxHxDh = chain_attention(
        own_BxLxH, other_BxLxH, v_BxLxHxDh, mask_BxL, self.radius)
    bias_D = self.param('bias', nn.initializers.zeros, (D,))
    o_BxLxD = o_BxLxHxDh.reshape(x_BxLxD.shape)
    return nn.elu(o_BxLxD + bias_D.astype(self.dtype)[None, None])


def chain_attention(own_BxLxH, other_BxLxH, v_BxLxHxDh, mask_BxL,
                    radius: int) -> jax.Array:
  """Averages the values of near tokens by softmax(LeakyReLU(own + other)).

  The float32 scores are those of a token as a query and as a neighbour. Padding
  is no neighbour. Returns an array like `v`, 0 at positions without neighbours.
  """
  B, L, H, _ = v_BxLxHxDh.shape
  pattern = sliding_window(min(radius, L))
  offsets, apart_IxK = window(pattern, L)
  near_1x1xIxK = (np.abs(apart_IxK) <= pattern.radius)[None, None]

  def sequence(own_L, other_L, v_LxDh, mask_L):
    own_ExNxI, other_ExNxI, v_ExNxIxDh, mask_ExNxI = (
        to_blocks(x, pattern.block) for x in (own_L, other_L, v_LxDh, mask_L))
    other_ExNxK, v_ExNxKxDh, mask_ExNxK = (
        neighbours(x, offsets) for x in (other_ExNxI, v_ExNxIxDh, mask_ExNxI))
    logits_ExNxIxK = nn.leaky_relu(
        own_ExNxI[..., None] + other_ExNxK[..., None, :], SLOPE)
    logits_ExNxIxK += partials.forbid(
        mask_ExNxK[..., None, :] & near_1x1xIxK)
    part = partials.weigh(logits_ExNxIxK, v_ExNxKxDh)
    return from_blocks(partials.normalise(part), L).astype(v_LxDh.dtype)

  def head(own_BxL, other_BxL, v_BxLxDh):
    return jax.vmap(sequence)(own_BxL, other_BxL, v_BxLxDh, mask_BxL)

  o_HxBxLxDh = partials.over_heads(
      head, *(jnp.moveaxis(x, 2, 0)
              for x in (own_BxLxH, other_BxLxH, v_BxLxHxDh)),
      num_logits=B * H * L * pattern.num_keys(L))
  return jnp.moveaxis(o_HxBxLxDh, 0, 2)
