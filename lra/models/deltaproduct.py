"""DeltaProduct: several steps of the delta rule for each token.

Each of a token's `householder` steps has its own key, value and beta. The state
decays before the first step unless `forget` is False, and the token reads it
after the last. In each step, keys are 3/4 D wide and values 3/2 D, as in the
authors' code. The bidirectional form is not in the paper.

Equation: S_(t,0) = alpha_t S_(t-1,n), S_(t,i) = S_(t,i-1) + beta_(t,i)
  k_(t,i)^T (v_(t,i) - k_(t,i) S_(t,i-1)) for i = 1 ... n, o_t = q_t S_(t,n) /
  sqrt(N); the rest as in Gated DeltaNet
Source: Siems et al. 2025, arXiv 2502.10297, section 3, and
  flash-linear-attention
"""

import jax.numpy as jnp

from lra.models import About, gated_deltanet
from lra.schema import fields

ABOUT = About('state space', 'O(n L D^2 / H) for n steps a token',
              kernels=('xla',))


class Mixer(gated_deltanet.Mixer):
  negative_eigenvalues: bool = True
  householder: int = fields.argument(
      2, 'Number of steps of the delta rule for each token, n.', low=1, high=64)
  forget: bool = fields.argument(
      True, 'Whether the state decays before the steps of a token.')

  @property
  def steps(self) -> int:
    return self.householder

  def log_decay(self, x_BxLxD):
    return super().log_decay(x_BxLxD) if self.forget else None

  def operands(self, q, k, v, beta, log_decay, reverse):
    first, last = (-1, 0) if reverse else (0, -1)

    def apart(y):
      """Gives each step a position: [B, L, n H, ...] -> [B, L n, H, ...]."""
      y = y.reshape(*y.shape[:2], self.steps, self.num_heads, *y.shape[3:])
      y = jnp.flip(y, 2) if reverse else y
      return y.reshape(y.shape[0], -1, *y.shape[3:])

    def alone(y, step):
      """Puts y [B, L, H, ...] at one of n steps, 0 elsewhere: [B, L n, ...]."""
      out = jnp.zeros((*y.shape[:2], self.steps, *y.shape[2:]), y.dtype)
      out = out.at[:, :, step].set(y)
      return out.reshape(y.shape[0], -1, *y.shape[2:])

    if log_decay is not None:
      log_decay = alone(log_decay, first)
    return alone(q, last), apart(k), apart(v), apart(beta), log_decay
