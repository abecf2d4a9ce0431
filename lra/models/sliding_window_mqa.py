"""Sliding window, multi-query: neighbours, with one key-value head for all.

Uses the window of `sliding_window`. The query heads share the keys and values
without a copy. Mistral has both ideas, but one key-value head for every four
query heads, and it looks back only.

Equation: softmax over { j : |i - j| <= w } of q_ih k_j / sqrt(Dh), of values
  v_j, the same k and v for every head h
Source: Shazeer 2019, arXiv 1911.02150, section 3; Jiang et al. 2023,
  arXiv 2310.06825, section 2
"""

import jax

from lra.models import sliding_window
from lra.nn import layers

FAMILY = 'sparse'
COST = 'O(L w D)'
GROWTH = {'time': 1, 'memory': 1}


class Mixer(sliding_window.Mixer):
  """`sliding_window.Mixer` with a single head of keys and of values."""

  def project(self, x_BxLxD: jax.Array
              ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns queries [B, L, H, Dh], and keys and values [B, L, 1, Dh]."""
    width = layers.head_width(self.qkv_width, self.num_heads)
    query, key, value = layers.QKV
    return self.turn(
        layers.project_heads(x_BxLxD, self.num_heads, self.qkv_width,
                             self.dtype, query, self.qkv_bias),
        *(layers.project_heads(x_BxLxD, 1, width, self.dtype, name,
                               self.qkv_bias) for name in (key, value)))
