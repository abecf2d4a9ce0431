"""BigBird: neighbouring, global and random blocks of keys.

The internal construction (no added tokens): blocks of `block_size`; a query
sees its own block and `window_blocks` // 2 on either side, the first
`global_blocks` blocks, and `random_blocks` others; the first `global_blocks`
blocks see everything. The authors' code and the LRA release make the first and
the last block global; the last is nearly always padding in LRA, so here the
blocks are the first ones.

The random graph is drawn once, from `pattern_seed` and the layer's name, and
differs between heads and layers. It is a graph on all blocks of the padded
sequence, so it differs between padded lengths: padding is never attended to,
but a longer padding is another graph.

Family: sparse
Equation: softmax over { j : block(j) in window, global or random blocks of
  block(i) } of q_i k_j / sqrt(Dh); all j where block(i) is global
Cost: O(L b (w + g + r) D) for blocks of b
Source: Zaheer et al. 2020, arXiv 2007.14062, section 2 and appendix D
"""

import zlib

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.errors import UserError
from lra.nn import block_sparse, layers, patterns

MIXES_PADDING = True  # the random graph depends on the padded length


class Mixer(nn.Module):
  """Window, global and random blocks: x [B, L, D], mask [B, L] -> [B, L, D].

  Attributes:
    num_heads: H.
    qkv_width: H * Dh.
    block_size: positions in a block.
    window_blocks: odd; blocks of the window, the query's own in the middle.
    global_blocks: so many first blocks are global.
    random_blocks: random blocks per query block and head.
    pattern_seed: seed of the random graph.
    qkv_bias: whether the three input projections have biases.
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: window_blocks is even, or the heads do not divide the width.
  """
  num_heads: int = 8
  qkv_width: int = 512
  block_size: int = 64
  window_blocks: int = 3
  global_blocks: int = 2
  random_blocks: int = 3
  pattern_seed: int = 0
  qkv_bias: bool = True
  dtype: jnp.dtype = jnp.float32

  def patterns(self, length: int) -> tuple[patterns.Pattern, ...]:
    """The pattern of all heads; a layer's own once the mixer is in a model."""
    if self.window_blocks % 2 == 0:
      raise UserError('config.model.window_blocks must be odd: the block of '
                      'the query is in the middle.')
    layer = '/'.join(self.scope.path) if self.scope else ''
    reach = self.window_blocks // 2
    positions = self.global_blocks * self.block_size
    return (patterns.Pattern(
        block=self.block_size, offsets=tuple(range(-reach, reach + 1)),
        global_keys=positions, global_queries=positions,
        random_blocks=patterns.random_blocks(
            -(-length // self.block_size), self.random_blocks, reach=reach,
            num_global=self.global_blocks, heads=self.num_heads,
            seed=(self.pattern_seed, zlib.crc32(layer.encode())))),)

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    del train
    qkv = block_sparse.Heads(*layers.project_qkv(
        x, self.num_heads, self.qkv_width, self.dtype, self.qkv_bias))
    o_BxLxHxDh = block_sparse.attend(qkv, mask, *self.patterns(x.shape[1]))
    return layers.merge_heads_and_project(o_BxLxHxDh, x.shape[-1], self.dtype)
