"""Super attention: efficient attention whose values are mixed along length.

The alignment matrix Wa, which fixes the length, mixes all positions, so padded
ones are zeroed before it: the content of padding changes no output.

Equation: softmax(X Wq X^T / sqrt(D)) (Wa X + ba) Wo, Wa: [L, L], ba: [L]
Source: Hosseini 2024, arXiv 2403.01643, Definition 4
"""

import flax.linen as nn
import jax.numpy as jnp

from lra.models import About, efficient
from lra.nn import arrays, layers

# Wa has the shape of one padded length.
ABOUT = About(
    'dense',
    'O(L^2 D) time, O(L^2) memory for Wa; 2 (D^2 + D) + L^2 + L parameters',
    time=2, memory=2, kernels=('dense', 'chunked', 'splash', 'cudnn'),
    mixes_padding=True)


class Mixer(efficient.Mixer):
  full_length: int | None = None

  def state_size(self, width: int, length: int) -> int:
    return 2 * length * width

  def keys_and_values(self, x_BxLx1xD, mask_BxL):
    x_BxLx1xD = jnp.where(mask_BxL[:, :, None, None], x_BxLx1xD, 0)
    v_Bx1xDxL = _Alignment(
        self.full_length or x_BxLx1xD.shape[1], dtype=self.dtype,
        name='alignment')(jnp.moveaxis(x_BxLx1xD, 1, -1))
    return x_BxLx1xD, jnp.moveaxis(v_Bx1xDxL, -1, 1)


class _Alignment(nn.Module):
  """Computes Wa x + ba on the last axis, for the first of `full` positions."""
  full: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x_DxL):
    length = x_DxL.shape[-1]
    kernel = self.param('kernel', layers.KERNEL_INIT, (self.full, self.full))
    bias = self.param('bias', nn.initializers.zeros, (self.full,))
    kernel, bias = (p.astype(self.dtype) for p in (kernel, bias))
    return x_DxL @ kernel[:length, :length] + arrays.to_rank_of(
        bias[:length], x_DxL)
