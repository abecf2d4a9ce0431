"""Short convolution: each channel is mixed with a few tokens before it.

Recurrent mixers use it before their state, for example H3 (arXiv 2212.14052,
section 3.1) and Mamba (arXiv 2312.00752, section 3.4).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.nn import convolution

ACTIVATIONS = {'identity': lambda x: x, 'silu': nn.silu}


class ShortConvolution(nn.Module):
  """Depth-wise convolution, causal unless `centred`: [B, L, D] -> [B, L, D].

    y_t = activation(sum_i w_i x_(t - K + 1 + i) + b),  i = 0 ... K - 1

  A token sees itself and the K - 1 tokens before it; in reverse it sees the
  K - 1 tokens after it, with the same weights. A centred convolution reads
  x_(t - K // 2 + i) instead. Masked tokens count as 0, and their outputs are 0.
  Parameters: `kernel` float32 [K, D], and `bias` [D] if there is one. They
  start uniform in +-K**-0.5, as in PyTorch.

  Attributes:
    width: K.
    activation: a key of `ACTIVATIONS`.
    use_bias: whether there is a bias.
    centred: whether K // 2 of the tokens come before the token, the rest after.
    dtype: dtype of the result; the sum is float32.
  """
  width: int = 4
  activation: str = 'silu'
  use_bias: bool = False
  centred: bool = False
  dtype: jnp.dtype = jnp.float32

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array, mask_BxL: jax.Array,
               reverse: bool = False) -> jax.Array:
    """Returns [B, L, D] from x [B, L, D] and mask [B, L], True = token."""
    keep_BxLx1 = mask_BxL[..., None]
    x_BxLxD = jnp.where(keep_BxLx1, x_BxLxD, 0)
    kernel_KxD = self.param(
        'kernel', self._init, (self.width, x_BxLxD.shape[-1]))
    y_BxLxD = convolution.depthwise(
        x_BxLxD.astype(jnp.float32),
        kernel_KxD[::-1] if reverse else kernel_KxD,
        before=None if self.centred else 0 if reverse else self.width - 1)
    if self.use_bias:
      bias_D = self.param('bias', self._init, x_BxLxD.shape[-1:])
      y_BxLxD += bias_D[None, None]
    y_BxLxD = ACTIVATIONS[self.activation](y_BxLxD).astype(self.dtype)
    return jnp.where(keep_BxLx1, y_BxLxD, 0)

  def _init(self, key, shape):
    bound = self.width**-0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def of_heads(convolution: ShortConvolution, y_BxLxHxW: jax.Array,
             mask_BxL: jax.Array, reverse: bool) -> jax.Array:
  """Returns the convolution of each channel of all heads, [B, L, H, W]."""
  y_BxLxE = y_BxLxHxW.reshape(*mask_BxL.shape, -1)
  return convolution(y_BxLxE, mask_BxL, reverse).reshape(y_BxLxHxW.shape)
