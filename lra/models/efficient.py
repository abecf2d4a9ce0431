"""Efficient attention: one head, with neither key nor value projection.

Family: dense
Equation: softmax(X Wq X^T / sqrt(D)) X Wo
Cost: O(L^2 D) time, O(L) memory; 2 (D^2 + D) parameters
Source: Hosseini 2024, arXiv 2403.01643, Definition 3
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import softmax
from lra.nn import layers

KERNELS = softmax.KERNELS


class Mixer(nn.Module):
  """Efficient attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes:
    kernel: see `lra.models.softmax`.
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: unknown or unsupported kernel.
  """
  kernel: str = 'auto'
  dtype: jnp.dtype = jnp.float32

  def implementation(self, length: int, width: int) -> str:
    """The kernel that runs for x [B, length, width], for the record."""
    del length
    return softmax.choose(self.kernel, dtype=self.dtype, head_width=width)

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    del train
    width = x.shape[-1]
    x_BxLx1xD = layers.split_heads(x.astype(self.dtype), 1)
    q_BxLx1xD = layers.project_heads(x, 1, width, self.dtype, 'query')
    o_BxLx1xD = softmax.attend(q_BxLx1xD, x_BxLx1xD, x_BxLx1xD, mask,
                               kernel=self.kernel)
    return layers.merge_heads_and_project(o_BxLx1xD, width, self.dtype)
