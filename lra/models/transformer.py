"""Transformer: multi-head softmax attention over all positions.

All values of `kernel` compute the exact softmax: `dense` keeps the weights [B,
H, L, L], `chunked` recomputes them in tiles, `splash` is JAX's splash attention
on a TPU, `cudnn` is jax.nn.dot_product_attention on an NVIDIA GPU and needs a
16-bit dtype. Only `dense` and `chunked` can drop attention weights.

Equation: softmax(Q K^T / sqrt(Dh)) V per head, then an output projection
Source: Vaswani et al. 2017, arXiv 1706.03762, eq. 1 and section 3.2.2
"""

from lra.core.errors import UserError
from lra.models import About
from lra.nn.mixer import BiasedMixer

ABOUT = About('dense', 'O(L^2 D) time; O(L^2) memory dense, else O(L)', time=2,
              kernels=('dense', 'chunked', 'splash', 'cudnn'))
DROPPING = ('auto', 'dense', 'chunked')


class Mixer(BiasedMixer):
  kernel: str = 'auto'

  op = 'softmax'

  def kernel_for(self, length, width):
    if self.attention_dropout and self.kernel not in DROPPING:
      raise UserError(
          f'config.model.kernel={self.kernel} drops no attention weights: use '
          'chunked or set config.model.attention_dropout=0.')
    return super().kernel_for(length, width)

  def kernel_call(self, length, width):
    return {**super().kernel_call(length, width),
            'dropout_rate': self.attention_dropout}
