"""Linformer: keys and values projected along length to M landmarks.

E and F are [L, M], so the parameters fix the length. Both mix all positions, so
padded keys and values are zeroed: the content of padding changes no output. The
paper also shares one matrix between all layers; this is left out.

Equation: softmax(Q (E^T K)^T / sqrt(Dh)) F^T V per head, E, F: [L, M], then an
  output projection
Source: Wang et al. 2020, arXiv 2006.04768, eq. 7; sharing in section 4
"""

import flax.linen as nn
import jax.numpy as jnp

from lra.models import About
from lra.nn.mixer import SoftmaxMixer
from lra.schema import fields

# E and F have the shape of one padded length.
ABOUT = About('low-rank', 'O(L M D) time, O(L) memory',
              kernels=('dense', 'chunked', 'splash', 'cudnn'),
              mixes_padding=True)


class Mixer(SoftmaxMixer):
  num_landmarks: int = fields.count(256, 'Number of landmarks, M.')
  sharing: str = fields.argument(
      'kv', "Projections E (of keys) and F (of values): 'none' has one pair "
      "for each head, 'headwise' one pair for all heads, 'kv' one matrix that "
      'is both.', choices=('none', 'headwise', 'kv'))

  def state_size(self, width: int) -> int:
    return self.kv_size(self.num_landmarks)

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    mask_BxLx1x1 = mask_BxL[:, :, None, None]
    length = mask_BxL.shape[1]  # shorter than full_length if padding is cut off
    e_GxLxM = self._projection('E', length)
    f_GxLxM = (e_GxLxM if self.sharing == 'kv' else
               self._projection('F', length))
    k_BxMxHxDh = _compress(jnp.where(mask_BxLx1x1, k_BxLxHxDh, 0), e_GxLxM)
    v_BxMxHxDh = _compress(jnp.where(mask_BxLx1x1, v_BxLxHxDh, 0), f_GxLxM)
    return self.attend(q_BxLxHxDh, k_BxMxHxDh, v_BxMxHxDh)

  def _projection(self, name, length):
    """Returns E or F: [H, L, M] without sharing, else [1, L, M]."""
    groups = self.num_heads if self.sharing == 'none' else 1
    init = nn.initializers.variance_scaling(
        1.0, 'fan_avg', 'uniform', in_axis=1, out_axis=2, batch_axis=0)
    shape = (groups, self.full_length or length, self.num_landmarks)
    return self.param(name, init, shape)[:, :length].astype(self.dtype)


def _compress(x_BxLxHxDh, e_GxLxM):
  if len(e_GxLxM) == 1:
    return jnp.einsum('blhd,lm->bmhd', x_BxLxHxDh, e_GxLxM[0])
  return jnp.einsum('blhd,hlm->bmhd', x_BxLxHxDh, e_GxLxM)
