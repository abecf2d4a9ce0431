"""Linformer: keys and values projected along length to M landmarks.

Exact for its equation. E and F are [L, M], so the length is fixed by the
parameters; they mix all positions, so padded keys and values are zeroed and
contribute nothing: the content of padding changes no output, but every true
position still reads all M landmarks, and E, F belong to one L. The paper's
fourth sharing, one matrix for all layers, is left out: a mixer owns its
parameters.

Family: low-rank
Equation: softmax(Q (E^T K)^T / sqrt(Dh)) F^T V per head, E, F: [L, M], then an
  output projection
Cost: O(L M D) time, O(L) memory
Source: Wang et al. 2020, arXiv 2006.04768, eq. 7; sharing in section 4
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.errors import UserError
from lra.models import softmax
from lra.nn import layers

KERNELS = softmax.KERNELS
MIXES_PADDING = True
SHARING = ('none', 'headwise', 'kv')


class Mixer(nn.Module):
  """Linformer attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes:
    num_heads: H.
    qkv_width: H * Dh, the width of all heads together.
    num_landmarks: M.
    sharing: 'none' has E and F per head, 'headwise' one E and one F for all
      heads, 'kv' one matrix that is both E and F for all heads.
    kernel: see `lra.models.softmax`.
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: unknown sharing, unknown or unsupported kernel, or the heads do
      not divide the width.
  """
  num_heads: int = 8
  qkv_width: int = 512
  num_landmarks: int = 256
  sharing: str = 'kv'
  kernel: str = 'auto'
  dtype: jnp.dtype = jnp.float32

  def implementation(self, length: int, width: int) -> str:
    """The kernel that runs for x [B, length, width], for the record."""
    del length, width
    return softmax.choose(
        self.kernel, dtype=self.dtype,
        head_width=layers.head_width(self.qkv_width, self.num_heads))

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    del train
    if self.sharing not in SHARING:
      raise UserError(f'Unknown config.model.sharing {self.sharing!r}: choose '
                      f'one of {", ".join(SHARING)}.')
    q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh = layers.project_qkv(
        x, self.num_heads, self.qkv_width, self.dtype)
    mask_BxLx1x1 = mask[:, :, None, None]
    e_GxLxM = self._projection('E', x.shape[1])
    f_GxLxM = (e_GxLxM if self.sharing == 'kv' else
               self._projection('F', x.shape[1]))
    k_BxMxHxDh = _compress(jnp.where(mask_BxLx1x1, k_BxLxHxDh, 0), e_GxLxM)
    v_BxMxHxDh = _compress(jnp.where(mask_BxLx1x1, v_BxLxHxDh, 0), f_GxLxM)
    o_BxLxHxDh = softmax.attend(q_BxLxHxDh, k_BxMxHxDh, v_BxMxHxDh,
                                kernel=self.kernel)
    return layers.merge_heads_and_project(o_BxLxHxDh, x.shape[-1], self.dtype)

  def _projection(self, name, length):
    """[H, L, M] without sharing, else [1, L, M]."""
    groups = self.num_heads if self.sharing == 'none' else 1
    init = nn.initializers.variance_scaling(
        1.0, 'fan_avg', 'uniform', in_axis=1, out_axis=2, batch_axis=0)
    shape = (groups, length, self.num_landmarks)
    return self.param(name, init, shape).astype(self.dtype)


def _compress(x_BxLxHxDh, e_GxLxM):
  """Sums positions into landmarks: [B, M, H, Dh]."""
  if len(e_GxLxM) == 1:
    return jnp.einsum('blhd,lm->bmhd', x_BxLxHxDh, e_GxLxM[0])
  return jnp.einsum('blhd,hlm->bmhd', x_BxLxHxDh, e_GxLxM)
