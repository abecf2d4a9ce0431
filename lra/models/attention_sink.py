"""Attention sinks: a sliding window, and the first tokens for everyone.

StreamingLLM's pattern: a model whose window has left the first tokens behind
breaks down, for softmax has nowhere to put the weight it does not need; with a
few first tokens kept it does not. There queries look back only and positions
are counted within the cache. Here, for an encoder, the window looks both ways,
positions are the encoder's (`rotary` turns queries and keys by theirs in the
sequence), and the first tokens, CLS among them, see their window only: they are
read, but do not read everything.

Equation: softmax over { j : |i - j| <= w or j < s } of q_i k_j / sqrt(Dh)
Source: Xiao et al. 2023, arXiv 2309.17453, section 3.2
"""

from lra import fields
from lra.nn.pattern_mixer import PatternMixer
from lra.nn.patterns import Pattern, sliding_window
from lra.nn.rotary import RotaryMixer

FAMILY = 'sparse'
COST = 'O(L (w + s) D)'
GROWTH = {'time': 1, 'memory': 1}


class Mixer(RotaryMixer, PatternMixer):
  """Window and sinks: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `RotaryMixer`, and
    radius: w, positions seen on either side.
    num_sinks: s, first positions that all queries see.
  """
  radius: int = fields.argument(256, low=0, high=fields.MANY)
  num_sinks: int = fields.argument(4, low=0, high=fields.MANY)

  def patterns(self, length: int) -> tuple[Pattern, ...]:
    """The pattern of all heads."""
    return (sliding_window(
        min(self.radius, length), global_keys=self.num_sinks),)
