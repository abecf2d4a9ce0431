"""MLP-Mixer: a perceptron across positions, the same for every channel.

This is the token-mixing half of the paper's layer; the encoder's MLP is the
channel-mixing half. The perceptron has weights for every position of the uncut
length. Padded inputs are zeroed, so the content of padding changes no output.

Equation: X + W2 gelu(W1 X + b1) + b2, W1: [S, L], W2: [L, S], for each channel
Source: Tolstikhin et al. 2021, arXiv 2105.01601, eq. 1
"""

import flax.linen as nn
import jax.numpy as jnp

from lra.models import About
from lra.nn.mixer import BaseMixer
from lra.schema import fields

# W1 and W2 have the shape of one padded length.
ABOUT = About('no attention', 'O(L S D)', mixes_padding=True)


class Mixer(BaseMixer):
  hidden: int = fields.count(
      256, 'Number of hidden units of the MLP over positions, S.')
  full_length: int | None = None

  def state_size(self, width: int) -> int:
    return self.hidden * width

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    length = x_BxLxD.shape[1]  # shorter than `full` if padding is cut off
    full = self.full_length or length
    up_LxS, up_S = self._layer('up', full, self.hidden)
    down_SxL, down_L = self._layer('down', self.hidden, full)
    x_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0).astype(self.dtype)
    hidden_BxSxD = nn.gelu(
        jnp.einsum('bld,ls->bsd', x_BxLxD, up_LxS[:length])
        + up_S[None, :, None])
    return jnp.einsum('bsd,sl->bld', hidden_BxSxD, down_SxL[:, :length]) + (
        down_L[None, :length, None])

  def _layer(self, name, ins, outs):
    return (
        self.param(f'{name}_kernel', nn.initializers.lecun_normal(),
                   (ins, outs)).astype(self.dtype),
        self.param(f'{name}_bias', nn.initializers.zeros,
                   (outs,)).astype(self.dtype))
