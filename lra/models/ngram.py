"""N-gram: every position sees itself and the N - 1 before it.

The paper masks the self-attention of a decoder in this way. A stack of n layers
reaches n (N - 1) positions back.

Equation: softmax over { j : 0 <= i - j < N } of q_i k_j / sqrt(Dh)
Source: Chelba et al. 2020, arXiv 2001.04589
"""

from lra.models import About
from lra.nn.block_sparse import PatternMixer
from lra.nn.mixer import MixerTraits
from lra.nn.patterns import sliding_window
from lra.schema import fields

ABOUT = About('sparse', 'O(L N D)')


class Mixer(PatternMixer):
  order: int = fields.count(
      8, 'Number of positions that a query sees, n, including its own.')

  traits = MixerTraits(causal=True)

  def patterns(self, length):
    return (sliding_window(min(self.order - 1, length), causal=True),)
