"""RetNet: linear attention whose heads decay at fixed rates, with rotation.

Queries and keys are rotated as in rotary attention. All heads share one scale
of their RMS norms. The authors' code also divides the weights of a query by
numbers that do not depend on the values, which the norm cancels, except for its
eps. Its rotation has other frequencies, from 1 to 10000 with both ends, and its
norm has no scale. It has no bidirectional form. Projections start as in that
code, smaller than in other models.

Equation: S_t = gamma_h S_(t-1) + k_t^T v_t, o_t = q_t S_t / sqrt(N),
  gamma_h = 1 - 2^(-5 - h), h = 0 ... H - 1; W_o (RMSNorm(o) SiLU(W_g x))
Source: Sun et al. 2023, arXiv 2307.08621, sections 2.1 and 2.2, and the
  released code
"""

import jax.numpy as jnp
import numpy as np

from lra.core.errors import UserError
from lra.models import About
from lra.nn import rotary
from lra.nn.matrix_state import GatedMixer, width_argument
from lra.schema import fields

ABOUT = About('state space', 'O(L D^2 / H)', kernels=('xla', 'pallas_tpu'))


class Mixer(GatedMixer):
  key_width: int = width_argument(
      'queries and keys of all heads together, even in each head; '
      '0 means D.')
  value_width: int = width_argument(
      'values of all heads together; 0 means 2 D.')
  released: bool = fields.argument(
      True, 'Whether projections start as in the released code: Xavier with '
      'gain 2^(-5/2), W_o with 1/2. Older records have gain 1 (False).')

  scaled = True

  @property
  def gains(self):
    return (2**-2.5, 0.5) if self.released else (1.0, 1.0)

  def widths(self, width):
    return self.key_width or width, self.value_width or 2 * width

  def operands(self, x_BxLxD, mask_BxL):
    N, E = self.heads(x_BxLxD.shape[-1])
    if N % 2:
      raise UserError(
          f'Heads of width {N} cannot be rotated in pairs: choose '
          'config.model.key_width and num_heads for an even width.')
    q_BxLxHxN, k_BxLxHxN = (
        rotary.rotate(self.project(x_BxLxD, N, name))
        for name in ('query', 'key'))
    v_BxLxHxE = self.project(x_BxLxD, E, 'value')
    log_decay_H = jnp.asarray(
        np.log1p(-2.0 ** (-5 - np.arange(self.num_heads))), jnp.float32)
    log_decay_BxLxH = jnp.broadcast_to(
        log_decay_H[None, None], v_BxLxHxE.shape[:3])
    return lambda reverse: (q_BxLxHxN, k_BxLxHxN, v_BxLxHxE, log_decay_BxLxH)
