"""Attention sinks: a sliding window, and the first tokens for everyone.

StreamingLLM's pattern. In the paper queries look back only, and positions are
counted within the cache; here the window looks both ways, and positions are
those of the sequence. The first tokens see only their own window. The paper's
models have `rotary`.

Equation: softmax over { j : |i - j| <= w or j < s } of q_i k_j / sqrt(Dh)
Source: Xiao et al. 2023, arXiv 2309.17453, section 3.2
"""

from lra.models import About
from lra.nn.block_sparse import PatternMixer
from lra.nn.patterns import sliding_window
from lra.nn.rotary import RotaryMixer
from lra.schema import fields

ABOUT = About('sparse', 'O(L (w + s) D)')


class Mixer(RotaryMixer, PatternMixer):
  radius: int = fields.count(
      256, 'Number of positions that a query sees on either side, w.', low=0)
  num_sinks: int = fields.count(
      4, 'Number of first positions that all queries see, s.', low=0)

  def patterns(self, length):
    return (sliding_window(
        min(self.radius, length), global_keys=self.num_sinks),)
