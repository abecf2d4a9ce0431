"""Optimised attention: multi-head softmax attention without a value projection.

The values of each head are its slice of the input. The output projection can
compensate for the missing value matrix.

Equation: H_i = softmax(Q_i K_i^T / sqrt(Dh)) X_i, X sliced into H heads, then
  an output projection
Source: Hosseini 2024, arXiv 2403.01643, Definition 2
"""

from lra.nn import layers
from lra.nn.mixer import SoftmaxMixer

FAMILY = 'dense'
COST = 'O(L^2 D) time, O(L) memory; 3 (D^2 + D) parameters'
GROWTH = {'time': 2, 'memory': 1}
KERNELS = ('dense', 'chunked', 'splash', 'cudnn')


class Mixer(SoftmaxMixer):
  """Optimised attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `SoftmaxMixer`; num_heads must also divide D.
  """
  def state_size(self, width: int, length: int) -> int:
    """Returns the size of all keys, and of the inputs as values."""
    return length * (self.qkv_width + width)

  def kernel_for(self, length: int, width: int) -> str:
    return super().kernel_for(
        length, width, value_width=layers.head_width(width, self.num_heads))

  def project(self, x_BxLxD):
    """Returns queries, keys [B, L, H, Dh] and values [B, L, H, D / H].

    The values are slices of x.
    """
    q_BxLxHxDh, k_BxLxHxDh = (
        self.heads(x_BxLxD, name) for name in ('query', 'key'))
    v_BxLxHxDv = layers.split_heads(x_BxLxD.astype(self.dtype), self.num_heads)
    return q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDv
