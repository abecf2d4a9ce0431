"""Optimised attention: multi-head softmax attention without a value projection.

The values of each head are its slice of the input, so num_heads must divide D.
The output projection can compensate for the missing value matrix.

Equation: H_i = softmax(Q_i K_i^T / sqrt(Dh)) X_i, X sliced into H heads, then
  an output projection
Source: Hosseini 2024, arXiv 2403.01643, Definition 2
"""

from lra.models import About
from lra.nn import layers
from lra.nn.mixer import SoftmaxMixer

ABOUT = About('dense', 'O(L^2 D) time, O(L) memory; 3 (D^2 + D) parameters',
              time=2, kernels=('dense', 'chunked', 'splash', 'cudnn'))


class Mixer(SoftmaxMixer):

  def state_size(self, width: int, length: int) -> int:
    return length * (self.qkv_width + width)

  def kernel_call(self, length, width):
    return {**super().kernel_call(length, width),
            'value_width': layers.head_width(width, self.num_heads)}

  def project(self, x_BxLxD):
    q_BxLxHxDh, k_BxLxHxDh = (
        self.heads(x_BxLxD, name) for name in ('query', 'key'))
    v_BxLxHxDv = layers.split_heads(x_BxLxD.astype(self.dtype), self.num_heads)
    return q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDv
