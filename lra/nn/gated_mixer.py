"""Base class of mixers whose state decays by a gate, such as RetNet and GLA.

Shapes: B batch, L length, D model width, H heads. N is the width of a head's
queries and keys, E that of its values.
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.nn import layers, norm
from lra.nn.matrix_state import EPS, MatrixStateMixer
from lra.nn.mixer import resolve_kernel


class GatedMixer(MatrixStateMixer):
  """Computes `lra.kernels.gated_linear_attention` of projections of the input.

  A bidirectional mixer runs the recurrence once from each end, with the same
  parameters, and sums both before it normalises the heads.

  Attributes: those of `MatrixStateMixer`, and
    per_channel: class attribute, whether each channel has a gate of its own.
    groups: class attribute, number of groups of heads that share queries and
      keys; 0 if no heads share them.
  """
  op = 'gated'
  per_channel = False
  groups = 0

  def kernel_for(self, length: int, width: int) -> str:
    """Returns the kernel that runs; see `HeadMixer.kernel_for`."""
    N, E = self.heads(width)
    return resolve_kernel(
        self.op, self.kernel, (1, length, self.num_heads, N), self.dtype,
        value_width=E + self.sums, channels=self.per_channel,
        groups=self.groups or self.num_heads)

  def attend(self, operands: Callable[[bool], tuple], mask_BxL: jax.Array,
             scale: float = 1.0) -> list[jax.Array]:
    """Runs the recurrence from one end, or from both; see `both_ways`.

    Args:
      operands: function of `reverse`, whether to begin at the last token. It
        returns q, k [B, L, H, N], v [B, L, H, E] and log decays [B, L, H] or
        [B, L, H, N].
      mask_BxL: True = token.
      scale: see `lra.kernels.gated_linear_attention`.
    """
    run = functools.partial(
        kernels.sharded(kernels.gated_linear_attention), scale=scale,
        kernel=self.kernel)
    return self.both_ways(
        lambda q, k, v, log_decay: run(
            q, k, v, log_decay=log_decay.astype(jnp.float32)),
        operands, mask_BxL)

  def merge(self, o_BxLxHxE: jax.Array, x_BxLxD: jax.Array) -> jax.Array:
    """Returns W_o (RMSNorm(o) SiLU(W_g x)), with a norm of each head."""
    o_BxLxHxE = norm.RMSNorm(
        epsilon=EPS, dtype=self.dtype, name='norm')(o_BxLxHxE)
    gate_BxLxHxE = self.project(x_BxLxD, o_BxLxHxE.shape[-1], 'gate')
    return layers.merge_heads_and_project(
        o_BxLxHxE * nn.silu(gate_BxLxHxE), x_BxLxD.shape[-1], self.dtype,
        use_bias=False)
