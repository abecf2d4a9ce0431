"""S4D: a long convolution per channel, whose kernel is a sum of exponentials.

Each channel has N / 2 complex modes, half of N conjugate pairs. B starts at 1,
or for `legs` at HiPPO's B. `tied` is n_ssm 1 of the authors' settings for Long
Range Arena. Each direction has its own C; the reverse kernel begins at the next
token, as in the authors' code. The paper's models have `encoder.block=none`.

Equation: y = K * x + K' * x (reversed) + d x,
  K[l] = 2 Re sum_n C_n B_n (exp(A_n dt) - 1) / A_n exp(A_n dt l); a gated GELU
Source: Gu et al. 2022, arXiv 2206.11893, sections 3 and 4, and the released
  code, which trains B
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra.core.errors import UserError
from lra.models import About
from lra.nn import direction, state_space
from lra.nn.convolution import convolve, exponential_sums
from lra.schema import fields

ABOUT = About('state space', 'O(L D (log L + N + D))')
PARAM_GROUPS = ('log_decay', 'frequency', 'log_step', 'b')

INITS = ('legs', 'lin', 'inv', 'real')
B_LIMIT = 2.0  # limit of the imaginary parts of HiPPO's B


class Mixer(direction.DirectedMixer):
  state_dim: int = fields.argument(
      64, 'Number of states of each channel, N; must be even.', low=2,
      high=4096)
  a_init: str = fields.argument(
      'legs', 'How A and B are initialised.', choices=INITS)
  tied: bool = fields.argument(True, 'Whether all channels share A and B.')
  activation: str = fields.argument(
      'full_glu', 'Activation and gate after the convolution; see '
      '`lra.nn.state_space.GatedOutput`.', choices=state_space.ACTIVATIONS)
  discretisation: str = fields.argument(
      'zoh', '`zoh` (zero-order hold) or `bilinear`.',
      choices=state_space.DISCRETISATIONS)
  dt_min: float = fields.argument(
      0.001, 'Range of the initial time steps dt.', above=0, high=1000.0)
  dt_max: float = fields.argument(
      0.1, 'Range of the initial time steps dt.', above=0, high=1000.0)

  def state_size(self, width: int) -> int:
    return width * self.state_dim * self.passes

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    x_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0).astype(jnp.float32)
    width, taps = x_BxLxD.shape[-1], x_BxLxD.shape[1]
    rate_SxN, b_SxN = self._modes(width)
    step_Dx1 = jnp.exp(self.param(
        'log_step', state_space.log_uniform(self.dt_min, self.dt_max),
        (width,)))[:, None]
    log_a_DxN, factor_DxN = state_space.discretise(
        jnp.broadcast_to(rate_SxN, (width, rate_SxN.shape[1])), step_Dx1,
        self.discretisation)
    kernels_DxK = [
        exponential_sums(
            2 * factor_DxN * b_SxN * state_space.as_complex(self.param(
                name, nn.initializers.normal(0.5**0.5),
                (*log_a_DxN.shape, 2))), log_a_DxN, taps)
        for name in ('c', 'c_reverse')[:self.passes]]
    y_BxLxD = convolve(x_BxLxD, *kernels_DxK, own_twice=False)
    d_D = self.param('d', nn.initializers.normal(1.0), (width,))
    return state_space.GatedOutput(
        self.activation, self.dropout, self.dtype, exact=True,
        tie_dropout=self.tie_dropout, name='output')(
            y_BxLxD + d_D[None, None] * x_BxLxD, train=train)

  def _modes(self, width):
    """Returns A and B, complex64 [1, N / 2] or [D, N / 2]."""
    if self.state_dim % 2:
      raise UserError(
          f'config.model.state_dim={self.state_dim} is odd: states come in '
          'pairs.')
    rate_N, b_N = modes(self.a_init, self.state_dim)
    shape = (1 if self.tied else width, len(rate_N))

    def start(part_N):
      return lambda _: jnp.broadcast_to(
          jnp.asarray(part_N, jnp.float32), shape)

    real_SxN = -jnp.exp(self.param('log_decay', start(np.log(-rate_N.real))))
    imaginary_SxN = self.param('frequency', start(rate_N.imag))
    b_SxN = self.param('b', lambda _: state_space.as_pair(
        jnp.broadcast_to(jnp.asarray(b_N, jnp.complex64), shape)))
    return (jax.lax.complex(real_SxN, imaginary_SxN),
            state_space.as_complex(b_SxN))


def modes(name: str, size: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns the initial A and B, complex128 [size / 2], of one of `INITS`."""
  n = np.arange(size // 2)
  one = np.ones(len(n), complex)
  if name == 'lin':
    return -0.5 + 1j * math.pi * n, one
  if name == 'inv':
    return -0.5 + 1j * size / math.pi * (size / (2 * n + 1) - 1), one
  if name == 'real':
    return -(n + 1.0) + 0j, one
  values, vectors = state_space.legs(size)
  b = vectors.conj().T @ np.sqrt(2 * np.arange(size) + 1)
  limited = np.clip(b.imag, -B_LIMIT, B_LIMIT)
  return -0.5 + 1j * values.imag, b.real + 1j * limited
