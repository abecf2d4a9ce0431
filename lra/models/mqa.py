"""Multi-query attention: all query heads share one head of keys and values.

Equation: softmax(Q_h K^T / sqrt(Dh)) V for each head h, then an output
  projection
Source: Shazeer 2019, arXiv 1911.02150, section 3
"""

from lra.nn.grouped import GroupedMixer

FAMILY = 'dense'
COST = 'O(L^2 D) time; O(L^2) memory dense, else O(L)'
GROWTH = {'time': 2, 'memory': 1}
KERNELS = ('dense', 'chunked', 'splash', 'cudnn')


class Mixer(GroupedMixer):
  """Multi-query attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `GroupedMixer`.
  """

  def groups(self):
    """See `GroupedMixer.groups`."""
    return 1
