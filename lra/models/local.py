"""Local: softmax attention within blocks of the sequence.

Blocks exchange nothing. The LRA release reshapes to [block, number of blocks],
so that its "blocks" are sets of positions L / block apart; here they are
consecutive positions.

Equation: softmax over { j : floor(j / b) = floor(i / b) } of q_i k_j / sqrt(Dh)
Source: Tay et al. 2020 (Long Range Arena), arXiv 2011.04006, released code
"""

from lra.models import About
from lra.nn.block_sparse import PatternMixer
from lra.nn.patterns import Pattern
from lra.schema import fields

ABOUT = About('sparse', 'O(L b D)')


class Mixer(PatternMixer):
  block_size: int = fields.count(
      50, 'Number of positions in a block, b; the last block may be shorter.')

  def patterns(self, length):
    return (Pattern(block=self.block_size),)
