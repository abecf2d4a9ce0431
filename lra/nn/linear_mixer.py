"""Mixers that call one linear operation of `kernels`, without copies.

On an accelerator one matmul computes queries, keys and values side by side, and
the kernel reads them in this layout. On a CPU three matmuls compute them
separately, which is faster with plain XLA.

Shapes: B batch, L length, D model width, H heads, Dh head width.
"""

import flax.linen as nn
import jax

import kernels
from lra.nn import layers
from lra.nn.mixer import HeadMixer


class LinearMixer(HeadMixer):
  """Projects, runs one operation of `kernels`, merges: [B, L, D] -> [B, L, D].

  A subclass names its operation in `op`, has its functions in `operations` (on
  q, k and v, and on qkv), and may override `options`.

  Attributes: those of `HeadMixer`, and
    kernel: 'auto' or one of `kernels.OPS[op]`.

  Raises:
    UserError: the heads do not divide the width, or the kernel is unknown or
      cannot run here.
  """
  kernel: str = 'auto'

  splits_sequences = True

  def options(self) -> dict:
    """Returns keyword arguments of the operation besides mask and kernel."""
    return {}

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array, mask_BxL: jax.Array, *,
               train: bool) -> jax.Array:
    """See `HeadMixer.__call__`."""
    if self.kernel_for(*x_BxLxD.shape[1:]) == 'xla':
      return super().__call__(x_BxLxD, mask_BxL, train=train)
    qkv_BxLx3xHxDh, bias = layers.project_packed(
        x_BxLxD, self.num_heads, self.qkv_width, self.dtype, self.qkv_bias)
    o_BxLxHxDh = self.attend(qkv_BxLx3xHxDh, mask=mask_BxL, bias=bias)
    return self.merge(o_BxLxHxDh, x_BxLxD)

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    """See `HeadMixer.mix`."""
    return self.attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask=mask_BxL)

  def attend(self, *operands: jax.Array, **arrays) -> jax.Array:
    """Runs the operation on q, k, v or on qkv: [B, L, H, Dh]."""
    apart, packed = self.operations
    return kernels.sharded(packed if len(operands) == 1 else apart)(
        *operands, kernel=self.kernel, **arrays, **self.options())
