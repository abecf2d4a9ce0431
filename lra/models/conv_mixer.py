"""ConvMixer: a depth-wise convolution over positions, GELU and a norm.

The encoder's MLP replaces the paper's pointwise convolution. A layer norm
replaces the batch norm, which would mix examples and count padding. Padded
inputs count as zero, like positions beyond both ends.

Equation: LayerNorm(gelu(conv_K(X) + b)), each channel its own K weights
Source: Trockman and Kolter 2022, arXiv 2201.09792, section 2
"""

import flax.linen as nn
import jax.numpy as jnp

from lra.models import About
from lra.nn import convolution
from lra.nn.mixer import BaseMixer, MixerTraits
from lra.nn.norm import LayerNorm
from lra.schema import fields

ABOUT = About('no attention', 'O(L K D)')


class Mixer(BaseMixer):
  conv_width: int = fields.argument(
      9, 'Number of positions under the kernel of the convolution, K.', low=1,
      high=1024)

  traits = MixerTraits(ordered=True)

  def state_size(self, width: int, length: int) -> int:
    return convolution.under_kernel(self.conv_width, width, length)

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    width = x_BxLxD.shape[-1]
    weight_KxD = self.param(
        'conv', nn.initializers.normal(self.conv_width**-0.5),
        (self.conv_width, width))
    bias_D = self.param('bias', nn.initializers.zeros, (width,))
    x_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0).astype(self.dtype)
    y_BxLxD = convolution.depthwise(
        x_BxLxD, weight_KxD) + bias_D.astype(self.dtype)[None, None]
    return LayerNorm(dtype=self.dtype, name='norm')(
        nn.gelu(y_BxLxD, approximate=False))
