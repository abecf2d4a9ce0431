"""Efficient attention: softmax over features of queries, positions of keys.

Each feature of the keys is a distribution over positions and gives one summary
of the values, which a query mixes by its own weights. The file has the name of
the paper's first author, because `efficient` is another mechanism.

Equation: softmax_features(Q) (softmax_positions(K)^T V) per head, then an
  output projection; `scaling`: Q (K^T V) / n per head, for n tokens
Source: Shen et al. 2018, arXiv 1812.01243, section 3
"""

import jax
import jax.numpy as jnp

from lra import kernels
from lra.models import About
from lra.nn import features
from lra.schema import fields

ABOUT = About('linear', 'O(L D Dh)',
              kernels=('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu'))


class Mixer(features.FeatureMixer):
  normalization: str = fields.argument(
      'softmax', 'How queries and keys are normalised.',
      choices=('softmax', 'scaling'))

  def feature_width(self, head_width):
    return head_width

  @property
  def normalised(self) -> bool:
    return self.normalization == 'softmax'

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
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
