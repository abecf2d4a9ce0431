"""Sparse Transformer: half of the heads have one sparse pattern, half another.

The paper's patterns are causal, for generation; here they look both ways. The
LRA release keeps them causal, as dense attention under a mask, and makes the
CLS token global (`num_global`), which the paper does not. The default stride
sqrt(L) depends on the padded length; a given stride does not.
"""

import math

from lra.core.errors import UserError
from lra.models import About
from lra.nn.block_sparse import PatternMixer
from lra.nn.patterns import Pattern, sliding_window
from lra.schema import fields

# With stride 0, s depends on the padded length.
ABOUT = About('sparse', 'O(L sqrt(L) D)', time=1.5, memory=1.5,
              mixes_padding=True)


class Strided(PatternMixer):
  """Sparse Transformer (strided): half the heads look near, half in strides.

  With s near sqrt(L) any position reaches any other in two steps.

  Equation: softmax over { j : |i - j| < s } of q_i k_j / sqrt(Dh) in one half
    of the heads, { j : (i - j) mod s = 0 } in the other
  Source: Child et al. 2019, arXiv 1904.10509, section 4.3
  """
  stride: int = fields.count(
      0, 'Stride of the pattern, s; 0 means sqrt(L), rounded up. With another '
      'value the output does not depend on the amount of padding.', low=0)
  num_global: int = fields.count(
      0, 'Number of first tokens that see all tokens and that all tokens see.',
      low=0)

  def patterns(self, length):
    if self.num_heads < 2:
      raise UserError('The heads are split between two patterns: '
                      'config.model.num_heads must be 2 or more.')
    full = self.full_length or length
    stride = self.stride or math.isqrt(full - 1) + 1
    return self.halves(length, stride, dict(
        global_keys=self.num_global, global_queries=self.num_global))

  def halves(self, length, stride, tokens):
    stride = min(stride, length)
    return (sliding_window(stride - 1, **tokens),
            Pattern(block=-(-length // stride), dilation=stride, **tokens))


class Fixed(Strided):
  """Sparse Transformer (fixed): half the heads in blocks, half on summaries.

  In the LRA release every head has both patterns, and a summary includes the
  first position of a block. A block cut short by padding has no summary. For a
  sequence shorter than s - c, the second half of the heads returns 0.

  Equation: softmax of q_i k_j / sqrt(Dh) over { j : floor(j / s) = floor(i / s)
    } in one half of the heads, { j : j mod s >= s - c } in the other
  Source: Child et al. 2019, arXiv 1904.10509, section 4.3
  """
  ABOUT = About('sparse', 'O(L sqrt(L) c D)', time=1.5, memory=1.5,
                mixes_padding=True)

  summary: int = fields.count(
      8, 'Number of positions of a block that all queries see, c; at most s.')

  def halves(self, length, stride, tokens):
    return (Pattern(block=stride, **tokens),
            Pattern(offsets=(), summary=(stride, min(self.summary, stride)),
                    **tokens))
