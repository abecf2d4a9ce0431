"""Efficient attention: one head, with neither key nor value projection.

Equation: softmax(X Wq X^T / sqrt(D)) X Wo
Source: Hosseini 2024, arXiv 2403.01643, Definition 3
"""

import flax.linen as nn

from lra import kernels
from lra.models import About
from lra.nn import layers
from lra.nn.mixer import BaseMixer

ABOUT = About('dense', 'O(L^2 D) time, O(L) memory; 2 (D^2 + D) parameters',
              time=2, kernels=('dense', 'chunked', 'splash', 'cudnn'))


class Mixer(BaseMixer):
  kernel: str = 'auto'

  op = 'softmax'

  def kernel_call(self, length, width):
    return {'shape': (1, length, 1, width), 'dtype': self.dtype}

  def keys_and_values(self, x_BxLx1xD, mask_BxL):
    """Returns keys and values [B, L, 1, D] of the one head: the input."""
    return x_BxLx1xD, x_BxLx1xD

  def state_size(self, width: int, length: int) -> int:
    return length * width

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    width = x_BxLxD.shape[-1]
    kernel = self.kernel_for(*x_BxLxD.shape[1:])
    k_BxLx1xD, v_BxLx1xD = self.keys_and_values(
        layers.split_heads(x_BxLxD.astype(self.dtype), 1), mask_BxL)
    q_BxLx1xD = layers.project_heads(x_BxLxD, 1, width, self.dtype, 'query')
    o_BxLx1xD = kernels.sharded(kernels.softmax_attention)(
        q_BxLx1xD, k_BxLx1xD, v_BxLx1xD, mask=mask_BxL, kernel=kernel)
    return layers.merge_heads_and_project(o_BxLx1xD, width, self.dtype)
