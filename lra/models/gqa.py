"""Grouped-query attention: groups of query heads share keys and values.

With one group it equals multi-query attention (`mqa`), with as many groups as
heads the Transformer. The paper averages the heads of trained multi-head
models; here the model is trained from the start.

Equation: softmax(Q_h K_g^T / sqrt(Dh)) V_g for each head h, g = floor(h G / H),
  then an output projection
Source: Ainslie et al. 2023, arXiv 2305.13245, section 2.2
"""

from lra.config import fields
from lra.nn.grouped import GroupedMixer

FAMILY = 'dense'
COST = 'O(L^2 D) time; O(L^2) memory dense, else O(L)'
GROWTH = {'time': 2, 'memory': 1}
KERNELS = ('dense', 'chunked', 'splash', 'cudnn')


class Mixer(GroupedMixer):
  """Grouped-query attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `GroupedMixer`, and
    num_kv_heads: G, number of heads of keys and of values.
  """
  num_kv_heads: int = fields.argument(2, low=1, high=fields.MANY)

  def groups(self):
    """See `GroupedMixer.groups`."""
    return self.num_kv_heads
