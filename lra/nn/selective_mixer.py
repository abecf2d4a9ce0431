"""Base class of Mamba-2 and Hydra, whose time steps depend on the input.

Each head is a state space with one rate A < 0. A token chooses the step dt:

  S_t = exp(dt_t A) S_(t-1) + dt_t B_t^T x_t,  dt_t = softplus(W x_t + bias)

Source: Dao and Gu 2024, arXiv 2405.21060, sections 6 and 7, and the released
code of Mamba-2

Shapes: B batch, L length, D model width, H heads, E width of a head's values,
G groups of heads that share B and C, N number of states of a channel.
"""

import jax
import jax.numpy as jnp

from lra.core.errors import UserError
from lra.nn import state_space
from lra.nn.gated_mixer import GatedMixer
from lra.schema import fields


class SelectiveMixer(GatedMixer):
  """A mixer whose gates are exp(dt A).

  Attributes: those of `GatedMixer`, and
    expand: width of all heads together, as a multiple of D: H * E / D.
    state_dim: number of states of each channel, N.
    groups: number of groups of heads that share queries and keys, G; must
      divide num_heads.
    conv_width: number of tokens that the short convolution reads.
    dt_min, dt_max: range of the initial dt of a zero input.
    dtype: dtype of the matmuls; gates and states are float32.

  Raises:
    UserError: num_heads does not divide a width, or groups not num_heads.
  """
  expand: int = fields.argument(2, low=1, high=64)
  state_dim: int = fields.argument(64, low=1, high=fields.MANY)
  groups: int = fields.argument(1, low=1, high=fields.MANY)
  conv_width: int = fields.argument(4, low=1, high=64)
  dt_min: float = fields.argument(0.001, above=0, high=1000.0)
  dt_max: float = fields.argument(0.1, above=0, high=1000.0)

  def widths(self, width: int) -> tuple[int, int]:
    return self.num_heads * self.state_dim, self.expand * width

  def heads(self, width: int) -> tuple[int, int]:
    if self.num_heads % self.groups:
      raise UserError(
          f'config.model.groups={self.groups} does not divide '
          f'config.model.num_heads={self.num_heads}: choose a divisor.')
    return super().heads(width)

  def steps(self, y_BxLxMxH: jax.Array, rate_init) -> tuple[jax.Array,
                                                            jax.Array]:
    """Returns dt and dt A, both float32 in the shape of y.

    Args:
      y_BxLxMxH: W x, [..., H].
      rate_init: initialiser of -A.
    """
    bias_H = self.param(
        'step_bias', state_space.step_bias(self.dt_min, self.dt_max),
        (self.num_heads,))
    log_rate_H = self.param(
        'log_rate', lambda *args: jnp.log(rate_init(*args)), (self.num_heads,))
    lead = (None,) * (y_BxLxMxH.ndim - 1)
    dt = jax.nn.softplus(y_BxLxMxH.astype(jnp.float32) + bias_H[lead])
    return dt, dt * -jnp.exp(log_rate_H[lead])


def times(x: jax.Array, factor: jax.Array) -> jax.Array:
  """Returns x [..., H, E] times float32 [..., H], in the dtype of x."""
  return (x.astype(jnp.float32) * factor[..., None]).astype(x.dtype)
