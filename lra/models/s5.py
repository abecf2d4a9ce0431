"""S5: one linear state space with many inputs and outputs, computed by a scan.

The state matrix consists of J equal blocks, each the normal part of HiPPO-LegS
in its eigenbasis. One state of every conjugate pair is kept. The directions
share all parameters but C. The paper's models have `encoder.block=none`, and in
the authors' code all tokens of a sequence share one dropout mask.

Equation: h_t = exp(Lambda dt) h_(t-1) + Lambda^-1 (exp(Lambda dt) - 1) B x_t,
  y_t = 2 Re(C [h_t, h'_t]) + d x_t, h' from the last token on; a gated GELU
Source: Smith et al. 2023, arXiv 2208.04933, sections 3 and 4, appendix B
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra import kernels
from lra.core.errors import UserError
from lra.models import About
from lra.nn import direction, state_space
from lra.schema import fields

ABOUT = About('state space', 'O(L D (N + D))',
              kernels=('xla', 'pallas_tpu', 'pallas_triton'))
PARAM_GROUPS = ('lambda_real', 'lambda_imaginary', 'log_step', 'b')

C_INITS = ('lecun', 'truncated', 'complex')


class Mixer(direction.DirectedMixer):
  state_dim: int = fields.count(
      64, 'Number of states, N, a multiple of 2 blocks. They are conjugate '
      'pairs, so only half of them are computed.', low=2)
  blocks: int = fields.count(
      8, 'Number of blocks of the initial state matrix, J.')
  activation: str = fields.argument(
      'half_glu1', 'Activation and gate after the recurrence; see '
      '`lra.nn.state_space.GatedOutput`.', choices=state_space.ACTIVATIONS)
  c_init: str = fields.argument(
      'lecun', 'Initial C. `lecun` (standard deviation (D N)^-1/2) and '
      '`truncated` (N^-1/2) are transformed to the eigenbasis; `complex` is '
      'normal there.', choices=C_INITS)
  discretisation: str = fields.argument(
      'zoh', '`zoh` (zero-order hold) or `bilinear`.',
      choices=state_space.DISCRETISATIONS)
  dt_min: float = fields.argument(
      0.001, 'Range of the initial time steps dt.', above=0, high=1000.0)
  dt_max: float = fields.argument(
      0.1, 'Range of the initial time steps dt.', above=0, high=1000.0)
  clip_eigenvalues: bool = fields.argument(
      False, 'Whether the real parts of Lambda are kept at or below -0.0001. '
      'Otherwise they may become positive, and the states infinite.')
  kernel: str = 'auto'

  op = 'scan'

  def state_size(self, width: int) -> int:
    return self.state_dim * self.passes

  def kernel_call(self, length, width):
    return {'shape': (1, length, self.state_dim // 2), 'dtype': jnp.complex64}

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    x_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0)
    width = x_BxLxD.shape[-1]
    rate_N, v_PxN = self._blocks()
    log_a_N, factor_N = state_space.discretise(
        self._rate(rate_N), jnp.exp(self.param(
            'log_step', state_space.log_uniform(self.dt_min, self.dt_max),
            rate_N.shape)), self.discretisation)
    b_NxD = state_space.as_complex(self.param('b', _turned(
        nn.initializers.lecun_normal(), (self.state_dim, width), v_PxN)))
    u_BxLxN = state_space.into_states(
        x_BxLxD, factor_N[:, None] * b_NxD, self.dtype)
    h_BxLxN = self.run(
        lambda reverse: kernels.sharded(kernels.linear_scan)(
            u_BxLxN, a=jnp.exp(log_a_N), reverse=reverse, kernel=self.kernel),
        join='concat')
    y_BxLxD = state_space.out_of_states(
        h_BxLxN, 2 * self._c(width, v_PxN), self.dtype)
    d_D = self.param('d', nn.initializers.normal(1.0), (width,))
    y_BxLxD += d_D[None, None] * x_BxLxD.astype(jnp.float32)
    return state_space.GatedOutput(
        self.activation, self.dropout, self.dtype,
        tie_dropout=self.tie_dropout, name='output')(y_BxLxD, train=train)

  def _blocks(self):
    """Returns Lambda [N / 2] and eigenvectors [N, N / 2] of all blocks."""
    if self.state_dim % (2 * self.blocks):
      raise UserError(
          f'config.model.state_dim={self.state_dim} cannot be split into '
          f'{self.blocks} blocks of an even number of states: choose a '
          f'multiple of {2 * self.blocks}, or other config.model.blocks.')
    values, vectors = state_space.legs(self.state_dim // self.blocks)
    return np.tile(values, self.blocks), np.kron(np.eye(self.blocks), vectors)

  def _rate(self, start_N):
    real_N, imaginary_N = (
        self.param(name, lambda _, part=part: jnp.asarray(part, jnp.float32))
        for name, part in (('lambda_real', start_N.real),
                           ('lambda_imaginary', start_N.imag)))
    if self.clip_eigenvalues:
      real_N = jnp.minimum(real_N, -1e-4)
    return jax.lax.complex(real_N, imaginary_N)

  def _c(self, width, v_PxN):
    """Returns C, complex64 [D, N / 2], or [D, N] if bidirectional."""
    names = ('c', 'c_reverse')[:self.passes]
    if self.c_init == 'complex':
      init = lambda key: nn.initializers.normal(0.5**0.5)(
          key, (width, v_PxN.shape[1], 2))
    else:
      init = _mixed(nn.initializers.lecun_normal(
          batch_axis=() if self.c_init == 'lecun' else 0),
                    (width, self.state_dim, 2), v_PxN)
    return jnp.concatenate([
        state_space.as_complex(self.param(name, init)) for name in names], -1)


def _turned(init, shape, v_PxN):
  """Returns an initialiser of V^H B, [N / 2, D, 2], for real B of `shape`."""
  return lambda key: state_space.as_pair(
      jnp.asarray(v_PxN.conj().T, jnp.complex64) @ init(key, shape).astype(
          jnp.complex64))


def _mixed(init, shape, v_PxN):
  """Returns an initialiser of C V, [D, N / 2, 2], for complex C of `shape`."""
  return lambda key: state_space.as_pair(
      state_space.as_complex(init(key, shape)) @ jnp.asarray(
          v_PxN, jnp.complex64))
