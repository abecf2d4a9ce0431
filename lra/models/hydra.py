"""Hydra: a quasiseparable matrix mixes tokens, from two shifted state spaces.

One state space runs from each end. Both read the same x and have the same rates
A, but each has its own B, C and dt. The output of a state space is shifted: a
token gets the output at the token before it. So neither state space contributes
a token's own x; a third term does, with a weight that the token chooses. A
short convolution centred on the token, with SiLU, precedes x, B and C.

A causal layer has the first state space only, and a causal convolution; this is
not in the paper.

Equation: y = shift(SS(x)) + flip(shift(SS'(flip(x)))) + (W_d x + d) x,
  SS(x)_t = C_t S_t, S_t = exp(dt_t A) S_(t-1) + dt_t B_t^T x_t;
  W_o (RMSNorm(y) SiLU(z))
Source: Hwang et al. 2024, arXiv 2407.09941, sections 3 and 4, and the released
  code
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.nn import arrays, direction, norm
from lra.nn.contraction import Dense
from lra.nn.matrix_state import EPS
from lra.nn.selective_mixer import SelectiveMixer, times
from lra.nn.short_convolution import ShortConvolution
from lra.schema import fields

FAMILY = 'state space'
COST = 'O(L D (D + N))'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_tpu')


class Mixer(SelectiveMixer):
  """Hydra: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `SelectiveMixer`.
  """
  conv_width: int = fields.argument(7, low=1, high=64)

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array, mask_BxL: jax.Array, *,
               train: bool) -> jax.Array:
    """Returns [B, L, D] from x [B, L, D] and mask [B, L], True = token."""
    del train
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    N, E = self.heads(x_BxLxD.shape[-1])
    lead, passes = x_BxLxD.shape[:2], direction.passes(self.direction)
    dense = functools.partial(Dense, dtype=self.dtype, use_bias=False)
    inner, states = self.num_heads * E, 2 * passes * self.groups * N
    z_BxLxI = dense(inner, name='gate')(x_BxLxD)
    u_BxLxC = ShortConvolution(
        self.conv_width, use_bias=True, centred=not self.causal,
        dtype=self.dtype, name='convolution')(
            dense(inner + states, name='inputs')(x_BxLxD), mask_BxL)
    dt_BxLxPxH, log_decay_BxLxPxH = self.steps(
        dense(passes * self.num_heads, name='step')(x_BxLxD).reshape(
            *lead, passes, self.num_heads), nn.initializers.ones)
    x_BxLxI, bc_BxLxS = u_BxLxC[..., :inner], u_BxLxC[..., inner:]
    x_BxLxHxE = x_BxLxI.reshape(*lead, self.num_heads, E)
    bc_BxLxPx2xGxN = bc_BxLxS.reshape(*lead, passes, 2, self.groups, N)

    def operands(reverse):
      way = int(reverse)
      b, c = (bc_BxLxPx2xGxN[:, :, way, i] for i in (0, 1))
      return (c, b, times(x_BxLxHxE, dt_BxLxPxH[:, :, way]),
              log_decay_BxLxPxH[:, :, way])

    skip_H = self.param('skip', nn.initializers.ones, (self.num_heads,))
    skip_BxLxH = dense(self.num_heads, name='skip_of_input')(x_BxLxI).astype(
        jnp.float32) + skip_H[None, None]
    y_BxLxHxE = x_BxLxHxE.astype(jnp.float32) * skip_BxLxH[..., None]
    for reverse, o_BxLxHxE in enumerate(self.attend(operands, mask_BxL)):
      y_BxLxHxE += arrays.token_before(
          o_BxLxHxE, mask_BxL, bool(reverse)).astype(jnp.float32)
    y_BxLxI = norm.RMSNorm(epsilon=EPS, dtype=self.dtype, name='norm')(
        y_BxLxHxE.reshape(z_BxLxI.shape))
    return dense(x_BxLxD.shape[-1], name='out')(y_BxLxI * nn.silu(z_BxLxI))
