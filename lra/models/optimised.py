"""Optimised attention: multi-head softmax attention without a value projection.

Each head reads its own slice of the input instead of a projection of it: the
output projection can make up for the missing matrix.

Family: dense
Equation: H_i = softmax(Q_i K_i^T / sqrt(Dh)) X_i, X sliced into H heads, then
  an output projection
Cost: O(L^2 D) time, O(L) memory; 3 (D^2 + D) parameters
Source: Hosseini 2024, arXiv 2403.01643, Definition 2
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import softmax
from lra.nn import layers

KERNELS = softmax.KERNELS


class Mixer(nn.Module):
  """Optimised attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes:
    num_heads: H; divides D as well as `qkv_width`.
    qkv_width: H * Dh, the width of all queries, and of all keys.
    kernel: see `lra.models.softmax`.
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: unknown or unsupported kernel, or the heads do not divide.
  """
  num_heads: int = 8
  qkv_width: int = 512
  kernel: str = 'auto'
  dtype: jnp.dtype = jnp.float32

  def implementation(self, length: int, width: int) -> str:
    """The kernel that runs for x [B, length, width], for the record."""
    del length
    return softmax.choose(
        self.kernel, dtype=self.dtype,
        head_width=layers.head_width(self.qkv_width, self.num_heads),
        value_width=layers.head_width(width, self.num_heads))

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    del train
    q_BxLxHxDh, k_BxLxHxDh = (
        layers.project_heads(x, self.num_heads, self.qkv_width, self.dtype,
                             name) for name in ('query', 'key'))
    v_BxLxHxDv = layers.split_heads(x.astype(self.dtype), self.num_heads)
    o_BxLxHxDv = softmax.attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDv, mask,
                                kernel=self.kernel)
    return layers.merge_heads_and_project(o_BxLxHxDv, x.shape[-1], self.dtype)
