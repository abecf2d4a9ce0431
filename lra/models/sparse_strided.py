"""Sparse Transformer (strided): half the heads look near, half in strides.

The first half of the heads sees the window |i - j| < s, the second every s-th
position, which is computed by reshaping to [L / s, s]. With s near sqrt(L) any
position reaches any other in two steps. The paper's patterns are causal, for
generation; LRA's tasks are an encoder's, so here they look both ways. (The LRA
release keeps them causal, as dense attention under a mask.) A stride left to
sqrt(L) follows the padded length; a given one does not.

`num_global` > 0 makes the first tokens global, as the LRA release does with
the CLS token; the paper has none.

Family: sparse
Equation: softmax of q_i k_j / sqrt(Dh) over { j : |i - j| < s } in one half of
  the heads, { j : (i - j) mod s = 0 } in the other
Cost: O(L sqrt(L) D)
Source: Child et al. 2019, arXiv 1904.10509, section 4.3
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.errors import UserError
from lra.nn import block_sparse, layers
from lra.nn.patterns import Pattern, sliding_window

MIXES_PADDING = True  # with stride 0, s depends on the padded length


class Mixer(nn.Module):
  """Strided sparse attention: x [B, L, D], mask [B, L] -> [B, L, D].

  Attributes:
    num_heads: H, at least 2.
    qkv_width: H * Dh.
    stride: s; 0 takes sqrt(L), rounded up. Given, it makes the output
      independent of how far a sequence is padded.
    num_global: so many first tokens are seen by all and see all.
    qkv_bias: whether the three input projections have biases.
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: fewer than two heads, or they do not divide the width.
  """
  num_heads: int = 8
  qkv_width: int = 512
  stride: int = 0
  num_global: int = 0
  qkv_bias: bool = True
  dtype: jnp.dtype = jnp.float32

  def patterns(self, length: int) -> tuple[Pattern, ...]:
    """The patterns of the two halves of the heads."""
    stride = self.stride or math.isqrt(length - 1) + 1
    tokens = dict(global_keys=self.num_global, global_queries=self.num_global)
    return (sliding_window(stride - 1, **tokens),
            Pattern(block=-(-length // stride), dilation=stride, **tokens))

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    del train
    if self.num_heads < 2:
      raise UserError('The heads are split between two patterns: '
                      'config.model.num_heads must be 2 or more.')
    qkv = block_sparse.Heads(*layers.project_qkv(
        x, self.num_heads, self.qkv_width, self.dtype, self.qkv_bias))
    o_BxLxHxDh = block_sparse.attend_in_groups(
        qkv, mask, self.patterns(x.shape[1]))
    return layers.merge_heads_and_project(o_BxLxHxDh, x.shape[-1], self.dtype)
