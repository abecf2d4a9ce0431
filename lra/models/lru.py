"""LRU: a linear recurrence whose complex decays lambda are parameters.

The initial decays lie in a ring between the radii r_min and r_max, with phases
up to max_phase; Path-X needs decays near 1 and small phases. gamma, a parameter
that starts at the root of 1 - |lambda|^2, keeps the size of states near that of
inputs. The directions share all parameters but C, as in S5. The paper's models
have `encoder.block=none`.

Equation: h_t = lambda h_(t-1) + gamma B x_t, y_t = Re(C [h_t, h'_t]) + d x_t,
  lambda = exp(-exp(nu) + i exp(theta)), h' from the last token on; a gated GELU
Source: Orvieto et al. 2023, arXiv 2303.06349, section 3 and appendix A
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.core.errors import UserError
from lra.models import About
from lra.nn import direction, state_space
from lra.schema import fields

ABOUT = About('state space', 'O(L D (N + D))',
              kernels=('xla', 'pallas_tpu', 'pallas_triton'))
PARAM_GROUPS = ('log_nu', 'log_theta', 'log_gamma', 'b')


class Mixer(direction.DirectedMixer):
  state_dim: int = fields.count(64, 'Number of complex states, N.')
  r_min: float = fields.argument(
      0.0, 'Range of the absolute values of lambda at the start of training.',
      low=0, below=1)
  r_max: float = fields.argument(
      1.0, 'Range of the absolute values of lambda at the start of training.',
      above=0, high=1)
  max_phase: float = fields.argument(
      6.28, 'Largest phase of lambda at the start of training.', above=0,
      high=2 * math.pi)
  activation: str = fields.argument(
      'full_glu', 'Activation and gate after the recurrence; see '
      '`lra.nn.state_space.GatedOutput`.', choices=state_space.ACTIVATIONS)
  kernel: str = 'auto'

  op = 'scan'

  def state_size(self, width: int) -> int:
    return 2 * self.state_dim * self.passes

  def kernel_call(self, length, width):
    return {'shape': (1, length, self.state_dim), 'dtype': jnp.complex64}

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train):
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    x_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0)
    width = x_BxLxD.shape[-1]
    lambda_N, gamma_N = self._ring()
    b_NxD = self._matrix('b', (self.state_dim, width), (2 * width)**-0.5)
    u_BxLxN = state_space.into_states(
        x_BxLxD, gamma_N[:, None].astype(b_NxD.dtype) * b_NxD, self.dtype)
    h_BxLxN = self.run(
        lambda reverse: kernels.sharded(kernels.linear_scan)(
            u_BxLxN, a=lambda_N, reverse=reverse, kernel=self.kernel),
        join='concat')
    c_DxN = jnp.concatenate([
        self._matrix(name, (width, self.state_dim), self.state_dim**-0.5)
        for name in ('c', 'c_reverse')[:self.passes]], -1)
    y_BxLxD = state_space.out_of_states(h_BxLxN, c_DxN, self.dtype)
    d_D = self.param('d', nn.initializers.normal(1.0), (width,))
    y_BxLxD += d_D[None, None] * x_BxLxD.astype(jnp.float32)
    return state_space.GatedOutput(
        self.activation, self.dropout, self.dtype,
        tie_dropout=self.tie_dropout, name='output')(y_BxLxD, train=train)

  def _ring(self):
    """Returns lambda, complex64 [N], and gamma, float32 [N]."""
    if self.r_min >= self.r_max:
      raise UserError(
          f'config.model.r_min={self.r_min} is not below '
          f'config.model.r_max={self.r_max}: choose a smaller r_min.')
    low, high = self.r_min**2, self.r_max**2
    tiny = jnp.finfo(jnp.float32).tiny  # keeps the logarithm finite

    def uniform(key):
      return jax.random.uniform(key, (self.state_dim,), minval=tiny)

    def log_nu(key):
      square = uniform(key) * (high - low) + low
      return jnp.log(jnp.maximum(-0.5 * jnp.log(square), tiny))

    log_nu_N = self.param('log_nu', log_nu)
    log_theta_N = self.param(
        'log_theta', lambda key: jnp.log(self.max_phase * uniform(key)))
    nu_N = jnp.exp(log_nu_N)
    log_gamma_N = self.param(
        'log_gamma', lambda _: 0.5 * jnp.log(-jnp.expm1(-2 * nu_N)))
    lambda_N = jnp.exp(jax.lax.complex(-nu_N, jnp.exp(log_theta_N)))
    return lambda_N, jnp.exp(log_gamma_N)

  def _matrix(self, name, shape, std):
    """Returns a complex64 matrix, whose parts have this standard deviation."""
    return state_space.as_complex(self.param(
        name, nn.initializers.normal(std), (*shape, 2)))
