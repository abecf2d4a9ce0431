"""Efficient attention: softmax over features of queries, positions of keys.

The two factors are normalised separately, so Q (K^T V) needs no normaliser.
Each feature of the keys weighs all positions once, and a query mixes these
summaries by its own weights. The paper's other normalisation divides queries
and keys by sqrt(n) each (`scaling`). The file is named after the paper's first
author, because `efficient` is another mechanism of this name.

Equation: softmax_features(Q) (softmax_positions(K)^T V) per head, then an
  output projection; `scaling`: Q (K^T V) / n per head, for n tokens
Source: Shen et al. 2018, arXiv 1812.01243, section 3
"""

import jax
import jax.numpy as jnp

import kernels
from lra.errors import UserError
from lra.nn.mixer import HeadMixer

FAMILY = 'linear'
COST = 'O(L D Dh)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu')
NORMALIZATIONS = ('softmax', 'scaling')


class Mixer(HeadMixer):
  """Efficient attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `HeadMixer`, and
    normalization: normalisation of queries and keys, one of `NORMALIZATIONS`.
    kernel: 'auto' or one of `KERNELS`.
  """
  normalization: str = 'softmax'
  kernel: str = 'auto'

  splits_sequences = True

  op = 'linear'

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    if self.normalization not in NORMALIZATIONS:
      raise UserError(
          f'Unknown config.model.normalization {self.normalization!r}: choose '
          f'one of {", ".join(NORMALIZATIONS)}.')
    mask_BxLx1x1 = mask_BxL[:, :, None, None]
    q_BxLxHxDh, k_BxLxHxDh = (
        y.astype(jnp.float32) for y in (q_BxLxHxDh, k_BxLxHxDh))
    if self.normalization == 'softmax':
      q_BxLxHxDh = jax.nn.softmax(q_BxLxHxDh, axis=-1)
      k_BxLxHxDh = jax.nn.softmax(
          jnp.where(mask_BxLx1x1, k_BxLxHxDh, -1e30), axis=1)
    else:
      n_Bx1x1x1 = jnp.maximum(mask_BxLx1x1.sum(1, keepdims=True), 1)
      q_BxLxHxDh, k_BxLxHxDh = (
          y * jax.lax.rsqrt(n_Bx1x1x1.astype(jnp.float32))
          for y in (q_BxLxHxDh, k_BxLxHxDh))
    return kernels.sharded(kernels.linear_attention)(
        q_BxLxHxDh.astype(self.dtype), k_BxLxHxDh.astype(self.dtype),
        v_BxLxHxDh, mask=mask_BxL, feature_map='identity', normalize=False,
        kernel=self.kernel)
