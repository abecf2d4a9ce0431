"""What mixers share whose state decays by a gate: RetNet, GLA, HGRN2, MetaLA.

Shapes: B batch, L length, D model width, H heads, N and E width of a head's
queries and values.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

import kernels
from lra.config import fields
from lra.errors import UserError
from lra.nn import direction, layers, norm
from lra.nn.mixer import resolve_kernel

EPS = 1e-5  # of the norms of heads, as in the released code of these papers


class GatedMixer(direction.DirectedMixer):
  """A mixer around `kernels.gated_linear_attention`.

  A bidirectional mixer runs the recurrence once from each end, with the same
  parameters, and sums both before it normalises the heads.

  Attributes: those of `DirectedMixer`, and
    num_heads: H.
    kernel: 'auto' or one of `KERNELS`.
    per_channel: class attribute, whether each channel has a gate of its own.
  """
  num_heads: int = 8
  kernel: str = 'auto'

  op = 'gated'
  per_channel = False

  def widths(self, width: int) -> tuple[int, int]:
    """Returns the widths of all heads' queries and values for D."""
    raise NotImplementedError

  def heads(self, width: int) -> tuple[int, int]:
    """Returns N and E.

    Raises:
      UserError: the heads do not divide the widths.
    """
    for total in self.widths(width):
      if not total or total % self.num_heads:
        raise UserError(
            f'config.model.num_heads={self.num_heads} does not divide a width '
            f'of {total} of queries or values: choose another number of heads, '
            'or widths that it divides.')
    return tuple(total // self.num_heads for total in self.widths(width))

  def state_size(self, width: int) -> int:
    """Returns how many numbers pass from token to token, in all directions."""
    N, E = self.heads(width)
    return self.num_heads * N * E * direction.passes(self.direction)

  def kernel_for(self, length: int, width: int) -> str:
    """Returns the kernel that runs; see `HeadMixer.kernel_for`."""
    N, E = self.heads(width)
    return resolve_kernel(
        self.op, self.kernel, (1, length, self.num_heads, N), self.dtype,
        value_width=E, channels=self.per_channel)

  def projection(self, ins: int, width: int, name: str,
                 use_bias: bool = False) -> layers.Projection:
    """Returns a projection [B, L, ins] -> [B, L, H, width]."""
    return layers.Projection((ins,), (self.num_heads, width), self.dtype,
                             use_bias, name=name)

  def project(self, x_BxLxD: jax.Array, width: int, name: str,
              use_bias: bool = False) -> jax.Array:
    """Projects to heads of `width`: [B, L, H, width]."""
    return self.projection(x_BxLxD.shape[-1], width, name, use_bias)(x_BxLxD)

  def attend(self, operands: Callable[[bool], tuple], mask_BxL: jax.Array,
             scale: float = 1.0) -> list[jax.Array]:
    """Runs the recurrence from one end, or from both.

    Both runs are one call, with twice as many heads: it compiles in half the
    time, and fills a GPU better.

    Args:
      operands: function of `reverse`, whether to begin at the last token. It
        returns q, k [B, L, H, N], v [B, L, H, E] and log decays [B, L, H] or
        [B, L, H, N].
      mask_BxL: True = token.
      scale: see `kernels.gated_linear_attention`.

    Returns:
      The outputs of each run, [B, L, H, E].
    """
    runs = [False] if self.causal else [False, True]
    given = [
        [jnp.flip(_kept(mask_BxL, y), 1) if reverse else _kept(mask_BxL, y)
         for y in operands(reverse)] for reverse in runs]
    q, k, v, log_decay = (
        jnp.concatenate(y, axis=2) for y in zip(*given, strict=True))
    o = kernels.sharded(kernels.gated_linear_attention)(
        q, k, v, log_decay=log_decay.astype(jnp.float32), scale=scale,
        kernel=self.kernel)
    return [_kept(mask_BxL, jnp.flip(y, 1) if reverse else y) for y, reverse in
            zip(jnp.split(o, len(runs), axis=2), runs, strict=True)]

  def merge(self, o_BxLxHxE: jax.Array, x_BxLxD: jax.Array) -> jax.Array:
    """Returns W_o (RMSNorm(o) SiLU(W_g x)), with a norm of each head."""
    o_BxLxHxE = norm.RMSNorm(
        epsilon=EPS, dtype=self.dtype, name='norm')(o_BxLxHxE)
    gate_BxLxHxE = self.project(x_BxLxD, o_BxLxHxE.shape[-1], 'gate')
    return layers.merge_heads_and_project(
        o_BxLxHxE * nn.silu(gate_BxLxHxE), x_BxLxD.shape[-1], self.dtype,
        use_bias=False)


def width_argument():
  """Returns a field for the width of all heads; 0 stands for a default."""
  return fields.argument(0, low=0, high=fields.MANY)


def _kept(mask_BxL, y):
  """Returns y with 0 at masked tokens: closed keys, and open gates."""
  keep = mask_BxL.reshape(*mask_BxL.shape, *(1,) * (y.ndim - 2))
  return jnp.where(keep, y, 0)
