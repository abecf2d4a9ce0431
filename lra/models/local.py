"""Local: softmax attention within blocks of the sequence.

Nothing is exchanged between blocks, so with CLS pooling the class is guessed
from the first block alone; mean pooling hears them all. The LRA release
reshapes to [block, number of blocks], so that its "blocks" are sets of
positions L / block apart; here they are consecutive positions.

Family: sparse
Equation: softmax over { j : floor(j / b) = floor(i / b) } of q_i k_j / sqrt(Dh)
Cost: O(L b D)
Source: Tay et al. 2020 (Long Range Arena), arXiv 2011.04006, released code
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.nn import block_sparse, layers
from lra.nn.patterns import Pattern


class Mixer(nn.Module):
  """Attention within blocks: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes:
    num_heads: H.
    qkv_width: H * Dh.
    block_size: b, positions in a block; the last block may be shorter.
    qkv_bias: whether the three input projections have biases.
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: the heads do not divide the width.
  """
  num_heads: int = 8
  qkv_width: int = 512
  block_size: int = 50
  qkv_bias: bool = True
  dtype: jnp.dtype = jnp.float32

  def patterns(self, length: int) -> tuple[Pattern, ...]:
    """The pattern of all heads."""
    del length
    return (Pattern(block=self.block_size),)

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    del train
    qkv = block_sparse.Heads(*layers.project_qkv(
        x, self.num_heads, self.qkv_width, self.dtype, self.qkv_bias))
    o_BxLxHxDh = block_sparse.attend(qkv, mask, *self.patterns(x.shape[1]))
    return layers.merge_heads_and_project(o_BxLxHxDh, x.shape[-1], self.dtype)
