"""Base of the mixers with softmax attention over all positions."""

import jax

import kernels
from lra.config import fields
from lra.nn import draws
from lra.nn.mixer import HeadMixer


class SoftmaxMixer(HeadMixer):
  """Softmax attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  A sequence whose mask is all False reads no values.

  Attributes: those of `HeadMixer`, and
    attention_dropout: dropout rate of attention weights. Only the kernels
      `dense` and `chunked` support it; 'auto' then takes `chunked`.
    kernel: 'auto' or one of `kernels.OPS['softmax']`; only a subclass that
      declares it has this field.
  """
  attention_dropout: float = fields.argument(0.0, low=0, below=1)

  kernel = 'auto'

  def bias(self, length: int) -> jax.Array | None:
    """Returns a bias by head and distance, float32 [H, 2 L - 1], or None."""
    del length

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    """See `HeadMixer.mix`."""
    rate = self.attention_dropout
    drop = {'dropout_rate': rate,
            'dropout_key': draws.row_keys(self, len(q_BxLxHxDh))} if (
                rate and train) else {}
    # Evaluation uses the kernel of training too, although it drops nothing.
    return kernels.sharded(kernels.softmax_attention)(
        q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask=mask_BxL,
        bias=self.bias(q_BxLxHxDh.shape[1]),
        kernel='chunked' if rate and self.kernel == 'auto' else self.kernel,
        **drop)
