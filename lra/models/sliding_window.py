"""Sliding window: every position sees its neighbours on both sides.

This is Longformer's window without global tokens. Mistral's window looks back
only. One layer reaches w positions away, n layers reach n w. With CLS pooling,
tokens further than that from the first position do not matter. Mistral rotates
queries and keys by their positions: set `rotary`.

Equation: softmax over { j : |i - j| <= w } of q_i k_j / sqrt(Dh)
Source: Beltagy et al. 2020, arXiv 2004.05150, section 3.1; Jiang et al. 2023,
  arXiv 2310.06825, section 2
"""

from lra.models import About
from lra.nn.block_sparse import PatternMixer
from lra.nn.patterns import sliding_window
from lra.nn.rotary import RotaryMixer
from lra.schema import fields

ABOUT = About('sparse', 'O(L w D)')


class Mixer(RotaryMixer, PatternMixer):
  radius: int = fields.argument(
      256, 'Number of positions that a query sees on either side, w.', low=0,
      high=fields.MANY)

  def patterns(self, length):
    # No positions lie beyond the length.
    return (sliding_window(min(self.radius, length)),)


class MultiQuery(Mixer):
  """Sliding window, multi-query: neighbours, with one key-value head for all.

  The query heads share the keys and values without a copy. Mistral has both
  ideas, but one key-value head for every four query heads, and it looks back
  only.

  Equation: softmax over { j : |i - j| <= w } of q_ih k_j / sqrt(Dh), of values
    v_j, the same k and v for every head h
  Source: Shazeer 2019, arXiv 1911.02150, section 3; Jiang et al. 2023,
    arXiv 2310.06825, section 2
  """

  def kv_size(self, count):
    return super().kv_size(count) // self.num_heads

  def project(self, x_BxLxD):
    return self.turn(
        self.heads(x_BxLxD, 'query'),
        *(self.heads(x_BxLxD, name, 1) for name in ('key', 'value')))
