"""Transformer: multi-head softmax attention over all positions.

`kernel` says how the softmax is computed, exactly in every case: `dense` keeps
the weights [B, H, L, L] and alone can drop them out; `chunked` recomputes them
in tiles, with memory linear in L; `splash` is JAX's splash attention on a TPU;
`cudnn` is jax.nn.dot_product_attention on an NVIDIA GPU and wants a 16-bit
dtype; `auto` takes that of the device where it can run, else `chunked`.

Equation: softmax(Q K^T / sqrt(Dh)) V per head, then an output projection
Source: Vaswani et al. 2017, arXiv 1706.03762, eq. 1 and section 3.2.2
"""

import kernels
from lra import fields
from lra.errors import UserError
from lra.nn.mixer import HeadMixer

FAMILY = 'dense'
COST = 'O(L^2 D) time; O(L^2) memory dense, else O(L)'
GROWTH = {'time': 2, 'memory': 1}
KERNELS = ('dense', 'chunked', 'splash', 'cudnn')


class Mixer(HeadMixer):
  """Softmax attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  A sequence whose mask is all False reads no value at all.

  Attributes: those of `HeadMixer`, and
    kernel: 'auto' or one of `KERNELS`.
    attention_dropout: rate at which weights are dropped; `dense` only.
  """
  kernel: str = 'auto'
  attention_dropout: float = fields.argument(0.0, low=0, below=1)

  op = 'softmax'

  def kernel_for(self, length: int, width: int) -> str:
    """See `HeadMixer.kernel_for`."""
    if self.attention_dropout and self.kernel in set(KERNELS) - {'dense'}:
      raise UserError(
          f'config.model.kernel={self.kernel} keeps no attention weights to '
          'drop: use dense or set config.model.attention_dropout=0.')
    return super().kernel_for(
        length, width, dropout_rate=self.attention_dropout)

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    """See `HeadMixer.mix`."""
    rate = self.attention_dropout
    drop = {'dropout_rate': rate, 'dropout_key': self.make_rng('dropout')} if (
        rate and train) else {}
    return kernels.sharded(kernels.softmax_attention)(
        q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask=mask_BxL,
        kernel='dense' if rate else self.kernel, **drop)
