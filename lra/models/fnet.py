"""FNet: the real part of a Fourier transform over positions and channels.

The mixer has no parameters. Padded inputs are zeroed, so outputs depend on the
padded length, even if `config.train.lengths` cuts padding off, but not on the
content of padding. The paper does not scale the sums, and its norm comes after
the residual sum; `orthonormal` keeps the first layer's output as large as the
embeddings.

Equation: Re(F_L X F_D), F the matrices of the discrete Fourier transform
Source: Lee-Thorp et al. 2021, arXiv 2105.03824, section 3
"""

import flax.linen as nn
import jax.numpy as jnp

from lra.models import About
from lra.nn.mixer import BaseMixer
from lra.schema import fields

# The transform depends on the padded length.
ABOUT = About('no attention', 'O(L D log(L D))', mixes_padding=True)


class Mixer(BaseMixer):
  orthonormal: bool = fields.argument(
      True, 'Whether the sums are divided by sqrt(L D).')
  full_length: int | None = None

  def state_size(self, width: int, length: int) -> int:
    return length * width

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    _, length, width = x_BxLxD.shape
    full = self.full_length or length
    x_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0).astype(jnp.float32)
    norm = 'ortho' if self.orthonormal else 'backward'
    half_BxNxK = jnp.fft.fft(
        jnp.fft.rfft(x_BxLxD, axis=2, norm=norm), n=full, axis=1,
        norm=norm).real
    # Channel D - k at position l is channel k at position -l.
    mirror_BxNxK = jnp.roll(jnp.flip(half_BxNxK, 1), 1, axis=1)
    rest = mirror_BxNxK[..., 1:(width + 1) // 2][..., ::-1]
    return jnp.concatenate(
        [half_BxNxK, rest], -1)[:, :length].astype(self.dtype)
