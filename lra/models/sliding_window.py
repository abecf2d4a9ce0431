"""Sliding window: every position sees its neighbours on both sides.

This is Longformer's window without global tokens, and Mistral's window, which
looks back only. LRA needs an encoder, so here the window looks both ways. One
layer reaches w positions away, n layers n w; with CLS pooling, only tokens that
reach the first position count. Mistral rotates queries and keys by their
positions: set `rotary`.

Equation: softmax over { j : |i - j| <= w } of q_i k_j / sqrt(Dh)
Source: Beltagy et al. 2020, arXiv 2004.05150, section 3.1; Jiang et al. 2023,
  arXiv 2310.06825, section 2
"""

from lra.config import fields
from lra.nn.pattern_mixer import PatternMixer
from lra.nn.patterns import Pattern, sliding_window
from lra.nn.rotary import RotaryMixer

FAMILY = 'sparse'
COST = 'O(L w D)'
GROWTH = {'time': 1, 'memory': 1}


class Mixer(RotaryMixer, PatternMixer):
  """Attention to neighbours: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `RotaryMixer`, and
    radius: w, number of positions seen on either side.
  """
  radius: int = fields.argument(256, low=0, high=fields.MANY)

  def patterns(self, length: int) -> tuple[Pattern, ...]:
    """Returns the one pattern of all heads."""
    # No positions lie beyond the length.
    return (sliding_window(min(self.radius, length)),)
