"""The common form of a mixer: project to heads, mix the heads, merge them.

Shapes: B batch, L length, D model width, H heads, Dh head width.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

import kernels
from lra.errors import UserError
from lra.nn import layers


class HeadMixer(nn.Module):
  """Projects to queries, keys and values, mixes heads, projects the output.

  A subclass defines `mix`; it may override `project` or `merge` if its first
  or last step differs. All three may create parameters.

  Attributes:
    num_heads: H.
    qkv_width: H * Dh, the width of all heads together.
    qkv_bias: whether the input projections have biases; the LRA release has
      none.
    dtype: computing dtype; parameters are float32.
    full_length: L of uncut sequences, for parameters that depend on it; None
      if no input is cut.
    op: class attribute, the operation of package `kernels` that the mixer
      calls. A mixer that sets it has a field `kernel: str = 'auto'`.

  Raises:
    UserError: the heads do not divide the width, an argument has none of its
      values, or the kernel is unknown or cannot run here. Subclasses name only
      what they add.
  """
  num_heads: int = 8
  qkv_width: int = 512
  qkv_bias: bool = True
  dtype: jnp.dtype = jnp.float32
  full_length: int | None = None

  op = ''
  # True if tokens may be sharded over devices, as sums over tokens allow.
  splits_sequences = False

  def mix(self, q_BxLxHxDh: jax.Array, k_BxLxHxDh: jax.Array,
          v_BxLxHxDh: jax.Array, mask_BxL: jax.Array, *,
          train: bool) -> jax.Array:
    """Mixes the heads: returns [B, L, H, Dh].

    Args:
      q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh: in the computing dtype.
      mask_BxL: bool, True = token. Values at other positions must not change
        the output at tokens.
      train: whether dropout and other noise are on.
    """
    raise NotImplementedError

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array, mask_BxL: jax.Array, *,
               train: bool) -> jax.Array:
    """Returns [B, L, D] from x [B, L, D] and mask [B, L], True = token."""
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    o_BxLxHxDh = self.mix(*self.project(x_BxLxD), mask_BxL, train=train)
    return self.merge(o_BxLxHxDh, x_BxLxD)

  def project(self, x_BxLxD: jax.Array
              ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns queries, keys and values, each [B, L, H, Dh]."""
    return layers.project_qkv(x_BxLxD, self.num_heads, self.qkv_width,
                              self.dtype, self.qkv_bias)

  def merge(self, o_BxLxHxDh: jax.Array, x_BxLxD: jax.Array) -> jax.Array:
    """Applies the output projection to the mixed heads: [B, L, D]."""
    return layers.merge_heads_and_project(
        o_BxLxHxDh, x_BxLxD.shape[-1], self.dtype)

  def kernel_for(self, length: int, width: int, **needs) -> str:
    """Returns the kernel that runs for x [B, length, width].

    A mixer without `op` runs 'xla'.

    Args:
      length: L.
      width: D.
      **needs: further requirements of a subclass; see `kernels.resolve`.

    Raises:
      UserError: the kernel is unknown or cannot run here.
    """
    if not self.op:
      return 'xla'
    shape = (1, length, self.num_heads,
             layers.head_width(self.qkv_width, self.num_heads))
    return resolve_kernel(self.op, self.kernel, shape, self.dtype, **needs)


def resolve_kernel(op: str, kernel: str, shape: tuple[int, ...],
                   dtype: jnp.dtype, **needs) -> str:
  """Calls `kernels.resolve`; its errors name `config.model.kernel`.

  Raises:
    UserError: the kernel is unknown or cannot run here.
  """
  try:
    return kernels.resolve(op, kernel, shape, dtype, **needs)
  except (NotImplementedError, ValueError) as e:
    raise UserError(
        f'config.model.kernel={kernel} is not possible: {e}.') from e
