"""Conformer: self-attention, then a convolution of gated features.

Joins the two middle modules of the paper's block in one mixer, without its half
MLPs ("macaron") and relative positions. The convolution reads the normalised
input plus the attention's output; the paper adds the output to the unnormalised
input. A layer norm replaces the batch norm, which would mix examples and count
padding.

Equation: A + P2 swish(LayerNorm(conv_K(glu(P1 LayerNorm(X + A))))),
  A = softmax(Q K^T / sqrt(Dh)) V Wo, glu([a, b]) = a sigmoid(b)
Source: Gulati et al. 2020, arXiv 2005.08100, sections 2.1, 2.2, Figure 2
"""

import flax.linen as nn
import jax.numpy as jnp

from lra.models import About
from lra.nn import convolution
from lra.nn.contraction import Dense
from lra.nn.mixer import MixerTraits, SoftmaxMixer
from lra.nn.norm import LayerNorm
from lra.schema import fields

ABOUT = About('dense', 'O(L^2 D) time; O(L^2) memory dense, else O(L)', time=2,
              kernels=('dense', 'chunked', 'splash', 'cudnn'))


class Mixer(SoftmaxMixer):
  conv_width: int = fields.argument(
      31, 'K, width of the convolution.', low=1, high=1024)
  conv_expansion: int = fields.argument(
      1, 'Number of channels of the convolution, as a multiple of D.', low=1,
      high=64)

  traits = MixerTraits(ordered=True)

  def state_size(self, width: int, length: int) -> int:
    return super().state_size(width, length) + convolution.under_kernel(
        self.conv_width, self.conv_expansion * width, length)

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    attended_BxLxD = super().__call__(x_BxLxD, mask_BxL, train=train)
    return attended_BxLxD + Convolution(
        self.conv_width, self.conv_expansion * x_BxLxD.shape[-1], self.dtype,
        name='conv')(x_BxLxD + attended_BxLxD, mask_BxL)


class Convolution(nn.Module):
  conv_width: int
  channels: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL):
    y_BxLxD = LayerNorm(dtype=self.dtype, name='norm_in')(x_BxLxD)
    value_BxLxC, gate_BxLxC = (
        Dense(self.channels, dtype=self.dtype, name=name)(y_BxLxD)
        for name in ('value', 'gate'))
    y_BxLxC = jnp.where(
        mask_BxL[..., None], value_BxLxC * nn.sigmoid(gate_BxLxC), 0)
    weight_KxC = self.param(
        'depthwise', nn.initializers.normal(self.conv_width**-0.5),
        (self.conv_width, self.channels))
    bias_C = self.param(
        'depthwise_bias', nn.initializers.zeros, (self.channels,))
    y_BxLxC = convolution.depthwise(
        y_BxLxC, weight_KxC) + bias_C.astype(self.dtype)[None, None]
    y_BxLxC = nn.swish(
        LayerNorm(dtype=self.dtype, name='norm')(y_BxLxC))
    return Dense(x_BxLxD.shape[-1], dtype=self.dtype, name='out')(y_BxLxC)
