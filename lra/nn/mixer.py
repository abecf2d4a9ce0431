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
  """Queries, keys and values by projection, `mix`, an output projection.

  A subclass writes `mix`; it may replace `project` or `merge` where its first
  or last step differs. All three may make parameters.

  Attributes:
    num_heads: H.
    qkv_width: H * Dh, the width of all heads together.
    qkv_bias: whether the input projections have biases; the LRA release has
      none.
    dtype: computing dtype; parameters are float32.
    full_length: L of uncut sequences, for what depends on it; None where no
      input is cut.
    op: the operation of package `kernels` that does the work, a class
      attribute; a mixer that names one has a field `kernel: str = 'auto'`.

  Raises:
    UserError: the heads do not divide the width, or the kernel is unknown or
      cannot run here.
  """
  num_heads: int = 8
  qkv_width: int = 512
  qkv_bias: bool = True
  dtype: jnp.dtype = jnp.float32
  full_length: int | None = None

  op = ''
  # Whether its tokens may lie on several devices, as those of sums over them.
  splits_sequences = False

  def mix(self, q_BxLxHxDh: jax.Array, k_BxLxHxDh: jax.Array,
          v_BxLxHxDh: jax.Array, mask_BxL: jax.Array, *,
          train: bool) -> jax.Array:
    """The mechanism: returns [B, L, H, Dh].

    Args:
      q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh: in the computing dtype.
      mask_BxL: bool, True = token. What stands at the other positions must
        not change the output at tokens.
      train: whether dropout and the like are on.
    """
    raise NotImplementedError

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array, mask_BxL: jax.Array, *,
               train: bool) -> jax.Array:
    """Returns [B, L, D] from x [B, L, D] and mask [B, L], True = token."""
    self.kernel_for(*x_BxLxD.shape[1:])  # an impossible kernel is refused
    o_BxLxHxDh = self.mix(*self.project(x_BxLxD), mask_BxL, train=train)
    return self.merge(o_BxLxHxDh, x_BxLxD)

  def project(self, x_BxLxD: jax.Array
              ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries, keys and values, each [B, L, H, Dh]."""
    return layers.project_qkv(x_BxLxD, self.num_heads, self.qkv_width,
                              self.dtype, self.qkv_bias)

  def merge(self, o_BxLxHxDh: jax.Array, x_BxLxD: jax.Array) -> jax.Array:
    """The output projection: [B, L, D] from the mixed heads."""
    return layers.merge_heads_and_project(
        o_BxLxHxDh, x_BxLxD.shape[-1], self.dtype)

  def kernel_for(self, length: int, width: int, **needs) -> str:
    """The kernel that runs for x [B, length, width]; 'xla' without a choice.

    Args:
      length: L.
      width: D.
      **needs: what a subclass asks of the kernel besides; see
        `kernels.resolve`.

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
  """`kernels.resolve`, refusing the impossible as a bad `config.model.kernel`.

  Raises:
    UserError: the kernel is unknown or cannot run here.
  """
  try:
    return kernels.resolve(op, kernel, shape, dtype, **needs)
  except (NotImplementedError, ValueError) as e:
    raise UserError(
        f'config.model.kernel={kernel} is not possible: {e}.') from e
