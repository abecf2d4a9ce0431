"""HGRN: a gated linear recurrence with rotating states and rising lower bounds.

Decays have a lower bound, so that upper layers forget more slowly than lower
ones. The bounds come from one table of parameters for all layers, which the
encoder holds. A bidirectional layer sums both directions, which share all
parameters but the angles.

The authors' scans along rows and columns of images are not implemented here.

Equation: h_t = lambda_t exp(i theta) h_(t-1) + (1 - lambda_t) c_t,
  lambda_t = gamma_k + (1 - gamma_k) sigmoid(x_t W_l),  c_t = SiLU(x_t W_c),
  gamma_k = sum_(j < k) softmax(G)_j for layer k,
  y_t = (LayerNorm([Re h_t, Im h_t]) * SiLU(x_t W_g)) W_o
Source: Qin et al. 2023, arXiv 2311.04823, section 3.2, and the released code
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra import kernels
from lra.models import About
from lra.nn import direction, norm, state_space
from lra.nn.contraction import Dense
from lra.schema import fields

ABOUT = About('state space', 'O(L D^2)',
              kernels=('xla', 'pallas_tpu', 'pallas_triton'))


class LowerBounds(nn.Module):
  """gamma of all layers: D -> float32 [num_layers, D]; gamma_0 = 0."""
  num_layers: int

  @nn.compact
  def __call__(self, width: int) -> jax.Array:
    share_KxD = nn.softmax(self.param(
        'bounds', nn.initializers.ones, (self.num_layers, width)), axis=0)
    # XLA computes a wrong gradient of one row of `cumsum` on a CPU.
    return jnp.stack([share_KxD[:k].sum(0) for k in range(self.num_layers)])


class Mixer(direction.DirectedMixer):
  share_theta: bool = fields.argument(
      False, 'Whether both directions rotate the state by the same angles.')
  released: bool = fields.argument(
      True, 'Whether 1e-5 is added to the variance in the norm, as in the '
      'released code. Older records have 1e-6 (False).')
  kernel: str = 'auto'
  layer: int = 0
  num_layers: int = 1

  op = 'scan'

  @property
  def traits(self):
    return super().traits.but(shared=LowerBounds)

  def state_size(self, width: int) -> int:
    return 2 * width * self.passes

  def kernel_call(self, length, width):
    return {'shape': (1, length, width), 'dtype': jnp.complex64}

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train,
               shared: jax.Array | None = None):
    """Returns [B, L, D]; `shared` are `LowerBounds`, None for the mixer's own.
    """
    width = x_BxLxD.shape[-1]
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    if shared is None:
      shared = LowerBounds(self.num_layers, name='lower')(width)
    x_BxLxD = x_BxLxD.astype(self.dtype)
    bound_D = shared[self.layer]
    decay_BxLxD = bound_D[None, None] + (1 - bound_D)[None, None] * nn.sigmoid(
        self._dense(width, 'decay')(x_BxLxD).astype(jnp.float32))
    input_BxLxE = nn.silu(self._dense(2 * width, 'input')(x_BxLxD))
    c_BxLxD = state_space.as_complex(
        input_BxLxE.astype(jnp.float32).reshape(*x_BxLxD.shape, 2))
    u_BxLxD = (1 - decay_BxLxD).astype(c_BxLxD.dtype) * c_BxLxD
    turns = self._turns(width)
    h_BxLxD = self.run(
        lambda reverse: kernels.sharded(kernels.linear_scan)(
            u_BxLxD, mask=mask_BxL, reverse=reverse, kernel=self.kernel,
            a=decay_BxLxD.astype(u_BxLxD.dtype) * turns[reverse][None, None]),
        join='sum')
    y_BxLxE = norm.LayerNorm(
        self.dtype, 1e-5 if self.released else norm.EPS, name='norm')(
        jnp.concatenate([h_BxLxD.real, h_BxLxD.imag], -1))
    gate_BxLxE = nn.silu(self._dense(2 * width, 'gate')(x_BxLxD))
    return self._dense(width, 'output')(y_BxLxE * gate_BxLxE)

  def _dense(self, width, name):
    return Dense(width, dtype=self.dtype, name=name)

  def _turns(self, width):
    """Returns exp(i theta), complex64 [D], for each direction."""
    names = ['theta']
    if not self.causal and not self.share_theta:
      names.append('theta_reverse')
    start = 10_000.0 ** (-2 / width * np.arange(width))
    turns = [
        jax.lax.complex(jnp.cos(theta_D), jnp.sin(theta_D)) for theta_D in (
            self.param(name, lambda _: jnp.asarray(start, jnp.float32))
            for name in names)]
    return turns[0], turns[-1]
