"""Super attention: efficient attention whose values are mixed along length.

The length L is fixed by the parameters. The alignment matrix Wa mixes all
positions, so padded positions are zeroed before it and contribute nothing;
their content changes no output, but Wa and its bias belong to one L.

Family: dense
Equation: softmax(X Wq X^T / sqrt(D)) (Wa X + ba) Wo, Wa: [L, L], ba: [L]
Cost: O(L^2 D) time, O(L^2) memory for Wa; 2 (D^2 + D) + L^2 + L parameters
Source: Hosseini 2024, arXiv 2403.01643, Definition 4
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import softmax
from lra.nn import layers

KERNELS = softmax.KERNELS
MIXES_PADDING = True


class Mixer(nn.Module):
  """Super attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

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
    _, length, width = x.shape
    x_BxLx1xD = layers.split_heads(x.astype(self.dtype), 1)
    x_BxLx1xD = jnp.where(mask[:, :, None, None], x_BxLx1xD, 0)
    v_BxLx1xD = jnp.moveaxis(nn.Dense(
        length, dtype=self.dtype, kernel_init=layers.KERNEL_INIT,
        name='alignment')(jnp.moveaxis(x_BxLx1xD, 1, -1)), -1, 1)
    q_BxLx1xD = layers.project_heads(x, 1, width, self.dtype, 'query')
    o_BxLx1xD = softmax.attend(q_BxLx1xD, x_BxLx1xD, v_BxLx1xD, mask,
                               kernel=self.kernel)
    return layers.merge_heads_and_project(o_BxLx1xD, width, self.dtype)
