"""HGRN: a gated linear recurrence with rotating states and rising lower bounds.

Decays depend on the token and have a lower bound, so that upper layers forget
more slowly than lower ones. The bounds are cumulative sums of a softmax over
the layers. They come from one table of parameters for all layers, which the
encoder holds. The first layer has the bound 0. Each state also rotates by an
angle that does not depend on the token. A bidirectional layer sums both
directions. They share all parameters but the angles; with `share_theta` also
the angles.

The authors' settings for Long Range Arena have `encoder.block=glu`, batch norms
and, for images, scans along rows and columns, which are not implemented here.

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
from lra.nn import direction, norm, state_space
from lra.nn.contraction import Dense
from lra.nn.lower_bounds import LowerBounds
from lra.nn.mixer import resolve_kernel

FAMILY = 'state space'
COST = 'O(L D^2)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_tpu', 'pallas_triton')


class Mixer(direction.DirectedMixer):
  """HGRN: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes:
    share_theta: whether both directions rotate the state by the same angles.
    kernel: 'auto' or one of `KERNELS`.
    dtype: dtype of the matmuls; the scan is complex64.
    layer, num_layers: index of the layer, from 0, and number of layers.

  Raises:
    UserError: an attribute has a value that is none of its choices.
  """
  share_theta: bool = False
  kernel: str = 'auto'
  layer: int = 0
  num_layers: int = 1

  op = 'scan'
  # The encoder makes this once for all layers.
  shared = LowerBounds

  def state_size(self, width: int) -> int:
    """Returns how many numbers pass from token to token, in all directions."""
    return 2 * width * direction.passes(self.direction)

  def kernel_for(self, length: int, width: int) -> str:
    """Returns the kernel that runs; see `HeadMixer.kernel_for`."""
    return resolve_kernel(self.op, self.kernel, (1, length, width),
                          jnp.complex64)

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array, mask_BxL: jax.Array, *, train: bool,
               shared: jax.Array | None = None) -> jax.Array:
    """Returns [B, L, D].

    Args:
      x_BxLxD: the input.
      mask_BxL: bool, True = token.
      train: unused.
      shared: result of `LowerBounds`; None if the mixer holds its own.
    """
    del train
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
    h_BxLxD = direction.run(
        self.direction,
        lambda reverse: kernels.sharded(kernels.linear_scan)(
            u_BxLxD, mask=mask_BxL, reverse=reverse, kernel=self.kernel,
            a=decay_BxLxD.astype(u_BxLxD.dtype) * turns[reverse][None, None]),
        join='sum')
    y_BxLxE = norm.LayerNorm(dtype=self.dtype, name='norm')(
        jnp.concatenate([h_BxLxD.real, h_BxLxD.imag], -1))
    gate_BxLxE = nn.silu(self._dense(2 * width, 'gate')(x_BxLxD))
    return self._dense(width, 'output')(y_BxLxE * gate_BxLxE)

  def _dense(self, width, name):
    return Dense(width, dtype=self.dtype, name=name)

  def _turns(self, width):
    """Returns exp(i theta), complex64 [D], for each direction."""
    names = ['theta']
    if direction.passes(self.direction) == 2 and not self.share_theta:
      names.append('theta_reverse')
    start = 10_000.0 ** (-2 / width * np.arange(width))
    turns = [
        jax.lax.complex(jnp.cos(theta_D), jnp.sin(theta_D)) for theta_D in (
            self.param(name, lambda _: jnp.asarray(start, jnp.float32))
            for name in names)]
    return turns[0], turns[-1]
