"""Grouped-query attention: groups of query heads share keys and values.

The paper averages the heads of trained multi-head models; here the model is
trained from the start.

Equation: softmax(Q_h K_g^T / sqrt(Dh)) V_g for each head h, g = floor(h G / H),
  then an output projection
Source: Ainslie et al. 2023, arXiv 2305.13245, section 2.2
"""

from lra.core.errors import UserError
from lra.models import About
from lra.nn.mixer import SoftmaxMixer
from lra.schema import fields

ABOUT = About('dense', 'O(L^2 D) time; O(L^2) memory dense, else O(L)', time=2,
              kernels=('dense', 'chunked', 'splash', 'cudnn'))


class MultiQuery(SoftmaxMixer):
  """Multi-query attention: all query heads share one head of keys and values.

  Equation: softmax(Q_h K^T / sqrt(Dh)) V for each head h, then an output
    projection
  Source: Shazeer 2019, arXiv 1911.02150, section 3
  """
  num_kv_heads = 1

  def kv_size(self, count):
    return super().kv_size(count) * self.num_kv_heads // self.num_heads

  def project(self, x_BxLxD):
    groups = self.num_kv_heads
    if self.num_heads % groups:
      raise UserError(
          f'config.model.num_kv_heads={groups} does not divide '
          f'config.model.num_heads={self.num_heads}: choose a divisor.')
    return self.heads(x_BxLxD, 'query'), *(
        self.heads(x_BxLxD, name, groups) for name in ('key', 'value'))


class Mixer(MultiQuery):
  num_kv_heads: int = fields.count(
      2, 'G, number of heads of keys and of values; it divides H.')
