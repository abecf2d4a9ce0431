"""Efficient attention: softmax over features of queries, positions of keys.

Both factors are normalised apart from each other, so that Q (K^T V) needs no
normaliser: each feature of the keys weighs all positions once, and a query
mixes these summaries by its own weights. (Named after its first author:
`efficient` is another mechanism of that name.)

Equation: softmax_features(Q) (softmax_positions(K)^T V) per head, then an
  output projection
Source: Shen et al. 2018, arXiv 1812.01243, section 3
"""

import jax
import jax.numpy as jnp

import kernels
from lra.nn.mixer import HeadMixer

FAMILY = 'linear'
COST = 'O(L D Dh)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu')


class Mixer(HeadMixer):
  """Efficient attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `HeadMixer`, and
    kernel: 'auto' or one of `KERNELS`.
  """
  kernel: str = 'auto'

  op = 'linear'

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    """See `HeadMixer.mix`."""
    k_BxLxHxDh = jnp.where(
        mask_BxL[:, :, None, None], k_BxLxHxDh.astype(jnp.float32), -1e30)
    q_BxLxHxDh = jax.nn.softmax(q_BxLxHxDh.astype(jnp.float32), axis=-1)
    return kernels.sharded(kernels.linear_attention)(
        q_BxLxHxDh.astype(self.dtype),
        jax.nn.softmax(k_BxLxHxDh, axis=1).astype(self.dtype), v_BxLxHxDh,
        mask=mask_BxL, feature_map='identity', normalize=False,
        kernel=self.kernel)
