"""Sparse Transformer (fixed): half the heads in blocks, half on summaries.

The first half of the heads sees its own block of s positions. The second half
sees the last c positions of every block, which summarise it for later layers.
The paper's patterns are causal, for generation; LRA needs an encoder, so here
they look both ways. The LRA release keeps them causal, as dense attention under
a mask. There every head has both patterns, and a summary includes the first
position of a block. A block cut short by padding has no summary. For a sequence
shorter than s - c, the second half of the heads returns 0.

`num_global` > 0 makes the first tokens global, as the LRA release does with the
CLS token; the paper has no global tokens.

Equation: softmax of q_i k_j / sqrt(Dh) over { j : floor(j / s) = floor(i / s) }
  in one half of the heads, { j : j mod s >= s - c } in the other
Source: Child et al. 2019, arXiv 1904.10509, section 4.3
"""

import math

from lra.config import fields
from lra.errors import UserError
from lra.nn.pattern_mixer import PatternMixer
from lra.nn.patterns import Pattern

FAMILY = 'sparse'
COST = 'O(L sqrt(L) c D)'
GROWTH = {'time': 1.5, 'memory': 1.5}
MIXES_PADDING = True  # with stride 0, s depends on the padded length


class Mixer(PatternMixer):
  """Fixed sparse attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `HeadMixer`, with num_heads 2 or more, and
    stride: s; 0 takes sqrt(L), rounded up. A given stride makes the output
      independent of the amount of padding.
    summary: c, number of positions of a block that all queries see, at most s.
    num_global: number of first tokens that are seen by all and see all.

  Raises:
    UserError: fewer than two heads, or they do not divide the width.
  """
  stride: int = fields.argument(0, low=0, high=fields.MANY)
  summary: int = fields.argument(8, low=1, high=fields.MANY)
  num_global: int = fields.argument(0, low=0, high=fields.MANY)

  def patterns(self, length: int) -> tuple[Pattern, ...]:
    """Returns one pattern for each half of the heads."""
    if self.num_heads < 2:
      raise UserError('The heads are split between two patterns: '
                      'config.model.num_heads must be 2 or more.')
    full = self.full_length or length
    stride = self.stride or math.isqrt(full - 1) + 1
    tokens = dict(global_keys=self.num_global, global_queries=self.num_global)
    return (Pattern(block=stride, **tokens),
            Pattern(offsets=(), summary=(stride, min(self.summary, stride)),
                    **tokens))
