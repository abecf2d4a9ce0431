"""Linear Transformer: attention with the feature map elu(x) + 1.

Family: linear
Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)), phi(x) = elu(x) + 1
Cost: O(L D Dh)
Source: Katharopoulos et al. 2020, arXiv 2006.16236, eq. 5 and 7
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

import kernels
from lra.nn import layers

KERNELS = ('xla', 'pallas_gpu', 'pallas_tpu')


class Mixer(nn.Module):
  """Linear attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes:
    num_heads: H.
    qkv_width: H * Dh, the width of all heads together.
    kernel: 'auto', 'xla', 'pallas_gpu' or 'pallas_tpu'.
    qkv_bias: whether the three input projections have biases.
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: the heads do not divide the width.
    NotImplementedError: the named kernel cannot run here.
  """
  num_heads: int = 8
  qkv_width: int = 512
  kernel: str = 'auto'
  qkv_bias: bool = True
  dtype: jnp.dtype = jnp.float32

  def implementation(self, length: int, width: int) -> str:
    """The kernel that runs for x [B, length, width], for the record."""
    return layers.linear_kernel('linear', self, length)

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    q, k, v = layers.project_qkv(
        x, self.num_heads, self.qkv_width, self.dtype, self.qkv_bias)
    o_BxLxHxDh = kernels.sharded(kernels.linear_attention)(
        q, k, v, mask=mask, implementation=self.kernel)
    return layers.merge_heads_and_project(
        o_BxLxHxDh, x.shape[-1], self.dtype)
