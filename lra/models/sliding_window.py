"""Sliding window: every position sees its neighbours on both sides.

This is Longformer's window without global tokens; Mistral's window looks back
only, and its models have `rotary`. One layer reaches w positions away, n layers
reach n w.

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
  radius: int = fields.count(
      256, 'Number of positions that a query sees on either side, w.', low=0)

  def patterns(self, length):
    # No positions lie beyond the length.
    return (sliding_window(min(self.radius, length)),)


class MultiQuery(Mixer):
  """Sliding window, multi-query: neighbours, with one key-value head for all.

  Mistral has one key-value head for four query heads, and looks back only.

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
