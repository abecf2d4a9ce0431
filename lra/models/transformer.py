"""Transformer: multi-head softmax attention over all positions.

`kernel` says how the softmax is computed, exactly in every case: `dense` keeps
the weights [B, H, L, L] and alone can drop them out; `chunked` recomputes them
in tiles, with memory linear in L; `cudnn` is jax.nn.dot_product_attention
on an NVIDIA GPU and wants a 16-bit dtype; `auto` takes the fastest that can.

Family: dense
Equation: softmax(Q K^T / sqrt(Dh)) V per head, then an output projection
Cost: O(L^2 D) time; O(L^2) memory dense, O(L) chunked and cudnn
Source: Vaswani et al. 2017, arXiv 1706.03762, eq. 1 and section 3.2.2
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import softmax
from lra.nn import layers

KERNELS = softmax.KERNELS
choose = softmax.choose


class Mixer(nn.Module):
  """Softmax attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  A sequence whose mask is all False reads no value at all.

  Attributes:
    num_heads: H.
    qkv_width: H * Dh, the width of all heads together.
    kernel: 'auto', 'dense', 'chunked' or 'cudnn'.
    attention_dropout: rate at which weights are dropped; `dense` only.
    qkv_bias: whether the three input projections have biases; the LRA release
      has none.
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: the kernel is unknown or cannot do what is asked, or the heads
      do not divide the width.
  """
  num_heads: int = 8
  qkv_width: int = 512
  kernel: str = 'auto'
  attention_dropout: float = 0.0
  qkv_bias: bool = True
  dtype: jnp.dtype = jnp.float32

  def implementation(self, length: int, width: int) -> str:
    """The kernel that runs for x [B, length, width], for the record."""
    del length, width
    return softmax.choose(
        self.kernel, dtype=self.dtype,
        head_width=layers.head_width(self.qkv_width, self.num_heads),
        attention_dropout=self.attention_dropout)

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    kernel = self.implementation(*x.shape[1:])
    q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh = layers.project_qkv(
        x, self.num_heads, self.qkv_width, self.dtype, self.qkv_bias)
    if self.attention_dropout:
      weights_BxHxLxL = softmax.dense_weights(
          q_BxLxHxDh, k_BxLxHxDh, mask, scale=q_BxLxHxDh.shape[-1]**-0.5)
      weights_BxHxLxL = nn.Dropout(self.attention_dropout)(
          weights_BxHxLxL, deterministic=not train)
      o_BxLxHxDh = softmax.apply_weights(weights_BxHxLxL, v_BxLxHxDh)
    else:
      o_BxLxHxDh = softmax.attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask,
                                  kernel=kernel)
    return layers.merge_heads_and_project(o_BxLxHxDh, x.shape[-1], self.dtype)
