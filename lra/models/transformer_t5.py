"""T5 attention: a learned number for each head and bucket of distances.

Half of the buckets are for keys before the query, half for keys after it. T5
shares the learned numbers between layers and does not divide by sqrt(Dh),
because its initial queries are smaller by this factor. Here each layer has its
own numbers, and logits are scaled.

Equation: softmax_j(q_i k_j / sqrt(Dh) + b_(h, bucket(j - i))) v_j per head, an
  output projection; bucket(d) = |d| below n = buckets / 4, else min(2 n - 1,
  n + floor(n log(|d| / n) / log(max_distance / n))), plus 2 n if d > 0
Source: Raffel et al. 2020, arXiv 1910.10683, section 2.1, and its released code
"""

import flax.linen as nn
import numpy as np

from lra.core.errors import UserError
from lra.models import About
from lra.nn.mixer import BiasedMixer, MixerTraits
from lra.schema import fields

ABOUT = About('dense', 'O(L^2 D) time, O(L) memory', time=2)


class Mixer(BiasedMixer):
  num_buckets: int = fields.count(
      32, 'Number of buckets of distances, for both directions together; must '
      'be a multiple of 4.', low=4)
  max_distance: int = fields.count(
      128, 'Distance at which the last bucket begins, above a quarter of '
      'num_buckets.', low=2)

  traits = MixerTraits(ordered=True)

  def bias(self, length):
    if self.num_buckets % 4 or self.max_distance <= self.num_buckets // 4:
      raise UserError(
          f'config.model.num_buckets={self.num_buckets} is not possible: '
          'choose a multiple of 4, below 4 max_distance.')
    bias_KxH = self.param(
        'relative_bias', nn.initializers.normal(self.qkv_width**-0.5),
        (self.num_buckets, self.num_heads))
    bucket_S = buckets(np.arange(1 - length, length),
                       self.num_buckets, self.max_distance)
    return bias_KxH[bucket_S].T


def buckets(distance: np.ndarray, num_buckets: int,
            max_distance: int) -> np.ndarray:
  """Returns the bucket of each distance, key minus query: integers, same shape.
  """
  half, near = num_buckets // 2, num_buckets // 4
  far = np.abs(distance)
  growth = np.log(np.maximum(far, 1) / near) / np.log(max_distance / near)
  grown = np.minimum(near + np.floor(near * growth), half - 1)
  return np.where(far < near, far, grown).astype(int) + half * (distance > 0)
