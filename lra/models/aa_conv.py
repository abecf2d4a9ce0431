"""Attention-augmented convolution: some channels attended, the rest convolved.

Widths of a head are rounded, to at least one channel; the paper gives each head
at least 20 key channels, and relative positions of images.

Equation: [conv_K(X), softmax(Q K^T / sqrt(dk / H)) V per head, projected],
  K x D x (1 - v) D weights in conv, dk = k D channels in Q, v D in V
Source: Bello et al. 2019, arXiv 1904.09925, section 3, without the
  relative positions
"""

import flax.linen as nn
import jax.numpy as jnp

from lra import kernels
from lra.models import About
from lra.nn import layers
from lra.nn.contraction import Dense
from lra.nn.convolution import under_kernel
from lra.nn.mixer import BaseMixer
from lra.schema import fields

ABOUT = About('dense',
              'O(L^2 D + L K D^2) time; O(L^2) memory dense, else O(L)', time=2,
              kernels=('dense', 'chunked', 'splash', 'cudnn'))


class Mixer(BaseMixer):
  num_heads: int = 8
  value_share: float = fields.argument(
      0.25, 'Share of the D output channels that attention computes; 1 means '
      'no convolution.', above=0, high=1)
  key_share: float = fields.argument(
      0.5, 'Width of the queries of all heads together, as a multiple of D.',
      above=0, high=64)
  conv_width: int = fields.argument(
      3, 'Number of positions under the kernel of the convolution, K.', low=1,
      high=1024)
  kernel: str = 'auto'

  op = 'softmax'

  def widths(self, width: int) -> tuple[int, int]:
    """Returns the widths of a head's queries and values for D = `width`."""
    return tuple(max(1, round(share * width / self.num_heads))
                 for share in (self.key_share, self.value_share))

  def kernel_call(self, length, width):
    key_width, value_width = self.widths(width)
    return {'shape': (1, length, self.num_heads, key_width),
            'dtype': self.dtype, 'value_width': value_width}

  def state_size(self, width: int, length: int) -> int:
    near = under_kernel(self.conv_width, width, length)
    attended = length * self.num_heads * sum(self.widths(width))
    return attended + (near if self.value_share < 1 else 0)

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    width = x_BxLxD.shape[-1]
    self.kernel_for(x_BxLxD.shape[1], width)  # refuses an impossible kernel
    key_width, value_width = self.widths(width)
    q_BxLxHxDk, k_BxLxHxDk, v_BxLxHxDv = (
        layers.project_heads(x_BxLxD, self.num_heads, self.num_heads * size,
                             self.dtype, name)
        for name, size in zip(layers.QKV, (key_width, key_width, value_width),
                              strict=True))
    o_BxLxHxDv = kernels.sharded(kernels.softmax_attention)(
        q_BxLxHxDk, k_BxLxHxDk, v_BxLxHxDv, mask=mask_BxL, kernel=self.kernel)
    attended = min(self.num_heads * value_width, width)
    o_BxLxE = layers.merge_heads_and_project(o_BxLxHxDv, attended, self.dtype)
    if attended == width:
      return o_BxLxE
    return jnp.concatenate(
        [self._convolve(x_BxLxD, mask_BxL, width - attended), o_BxLxE], -1)

  def _convolve(self, x_BxLxD, mask_BxL, channels):
    length, before = x_BxLxD.shape[1], self.conv_width // 2
    x_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0)
    padded = jnp.pad(
        x_BxLxD, ((0, 0), (before, self.conv_width - 1 - before), (0, 0)))
    near_BxLxE = jnp.concatenate(
        [padded[:, i:i + length] for i in range(self.conv_width)], -1)
    return Dense(channels, dtype=self.dtype, name='conv')(near_BxLxE)
