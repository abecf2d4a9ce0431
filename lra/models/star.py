"""Star Attention: blocks that see themselves and the first, the anchor.

The query tokens attend to all tokens. In the paper several machines hold the
blocks, and merge their softmaxes by the log-sum-exp. There the query comes
after the context, which does not see it, and both look back only. Here the
query tokens are the first ones (such as CLS), part of the anchor block, and all
look both ways. The paper's models have `rotary`.

Equation: softmax over { j : floor(j / b) in {floor(i / b), 0} } of
  q_i k_j / sqrt(Dh); all j if i < query tokens
Source: Acharya et al. 2024, arXiv 2411.17116, section 2 and algorithms 1-2
"""

from lra.models import About
from lra.nn.block_sparse import PatternMixer
from lra.nn.patterns import Pattern
from lra.nn.rotary import RotaryMixer
from lra.schema import fields

ABOUT = About('sparse', 'O(L b D)')


class Mixer(RotaryMixer, PatternMixer):
  block_size: int = fields.count(
      512, 'Number of positions in a block, b; the first block is the anchor.')
  num_queries: int = fields.count(
      1, 'Number of first positions that see all positions.', low=0)

  def patterns(self, length):
    return (Pattern(block=self.block_size, global_keys=self.block_size,
                    global_queries=self.num_queries),)
