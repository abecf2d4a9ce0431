"""SimpleTRON: attention without softmax, evaluated as Q (K^T V).

The paper's "Simple" layer: the heads, side by side, are the output; there is
neither an inner skip nor an output projection. Its two variants are
`simpletron_res` and `simpletron_resl`. L in the scale counts padded positions
too, as in the released code. That code masks no padding either:
`config.mask_padding = False` reproduces it.

Family: linear
Equation: (1/sqrt(L)) Q (K^T V) per head
Cost: O(L D Dh)
Source: Yorsh et al. 2021, arXiv 2111.15588, section 3
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

import kernels
from lra.errors import UserError
from lra.nn import layers

KERNELS = ('xla', 'pallas_gpu', 'pallas_tpu')
MIXES_PADDING = True  # the scale depends on the padded length


class Mixer(nn.Module):
  """SimpleTRON attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes:
    num_heads: H.
    qkv_width: H * Dh; equal to D unless `output_projection`.
    kernel: 'auto', 'xla', 'pallas_gpu' or 'pallas_tpu'.
    skip: whether x is added to the heads ("-Res").
    output_projection: whether a dense layer follows ("-ResL").
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: the heads do not divide the width, or the widths differ.
    NotImplementedError: the named kernel cannot run here.
  """
  num_heads: int = 8
  qkv_width: int = 512
  kernel: str = 'auto'
  skip: bool = False
  output_projection: bool = False
  dtype: jnp.dtype = jnp.float32

  def implementation(self, length: int, width: int) -> str:
    """The kernel that runs for x [B, length, width], for the record."""
    return layers.linear_kernel('simpletron', self, length)

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    if self.qkv_width != x.shape[-1]:
      raise UserError(
          f'config.model.qkv_width={self.qkv_width} must equal '
          f'config.encoder.width={x.shape[-1]}: SimpleTRON adds its heads to '
          'the residual stream as they are.')
    q, k, v = layers.project_qkv(
        x, self.num_heads, self.qkv_width, self.dtype)
    o_BxLxHxDh = kernels.sharded(kernels.simpletron_attention)(
        q, k, v, mask=mask, implementation=self.kernel)
    if self.skip:
      o_BxLxHxDh += layers.split_heads(x, self.num_heads)
    if self.output_projection:
      return layers.merge_heads_and_project(
          o_BxLxHxDh, x.shape[-1], self.dtype)
    return o_BxLxHxDh.reshape(x.shape)
