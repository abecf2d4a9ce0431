"""Hydra: a quasiseparable matrix mixes tokens, from two shifted state spaces.

One state space runs from each end. Both read the same x and have the same rates
A, but each has its own B, C and dt. A token gets the output at the token before
it, so neither state space contributes a token's own x; a third term does, with
a weight that the token chooses. A short convolution centred on the token, with
SiLU, precedes x, B and C. A causal layer, which is not in the paper, has the
first state space only.

Equation: y = shift(SS(x)) + flip(shift(SS'(flip(x)))) + (W_d x + d) x,
  SS(x)_t = C_t S_t, S_t = exp(dt_t A) S_(t-1) + dt_t B_t^T x_t;
  W_o (RMSNorm(y) SiLU(z))
Source: Hwang et al. 2024, arXiv 2407.09941, sections 3 and 4, and the released
  code
"""

import flax.linen as nn
import jax.numpy as jnp

from lra.models import About
from lra.nn import arrays, norm
from lra.nn.convolution import ShortConvolution
from lra.nn.matrix_state import EPS, SelectiveMixer, times
from lra.schema import fields

ABOUT = About('state space', 'O(L D (D + N))', kernels=('xla', 'pallas_tpu'))


class Mixer(SelectiveMixer):
  conv_width: int = fields.argument(7, low=1, high=64)

  def mix(self, x_BxLxD, mask_BxL):
    N, E = self.heads(x_BxLxD.shape[-1])
    lead, passes = x_BxLxD.shape[:2], self.passes
    inner, states = self.num_heads * E, 2 * passes * self.groups * N
    z_BxLxI = self.dense(inner, 'gate')(x_BxLxD)
    u_BxLxC = ShortConvolution(
        self.conv_width, use_bias=True, centred=not self.causal,
        dtype=self.dtype, name='convolution')(
            self.dense(inner + states, 'inputs')(x_BxLxD), mask_BxL)
    dt_BxLxPxH, log_decay_BxLxPxH = self.steps(
        self.dense(passes * self.num_heads, 'step')(x_BxLxD).reshape(
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
    skip_BxLxH = self.dense(self.num_heads, 'skip_of_input')(x_BxLxI).astype(
        jnp.float32) + skip_H[None, None]
    y_BxLxHxE = x_BxLxHxE.astype(jnp.float32) * skip_BxLxH[..., None]
    for reverse, o_BxLxHxE in enumerate(self.attend(operands, mask_BxL)):
      y_BxLxHxE += arrays.token_before(
          o_BxLxHxE, mask_BxL, bool(reverse)).astype(jnp.float32)
    y_BxLxI = norm.RMSNorm(epsilon=EPS, dtype=self.dtype, name='norm')(
        y_BxLxHxE.reshape(z_BxLxI.shape))
    return self.dense(x_BxLxD.shape[-1], 'out')(y_BxLxI * nn.silu(z_BxLxI))
