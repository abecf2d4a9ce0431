"""State space models: initial values, discretisation, projections, output.

Source: Gu et al. 2022, arXiv 2206.11893 (S4D), sections 3 and 4; Smith et al.
2023, arXiv 2208.04933 (S5), section 3 and appendix B

Shapes: B batch, L length, D model width, N complex states.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra.core.errors import UserError
from lra.nn import contraction
from lra.nn.contraction import Dense
from lra.nn.dropout import Dropout

ACTIVATIONS = ('gelu', 'half_glu1', 'half_glu2', 'full_glu')
DISCRETISATIONS = ('zoh', 'bilinear')


@functools.cache
def legs(size: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns eigenvalues and eigenvectors of the normal part of HiPPO-LegS.

    A_nk = -sqrt((2 n + 1) (2 k + 1)) if n > k, -(n + 1) if n = k, else 0
    A + p p^T = V diag(eigenvalues) V^H,  p_n = sqrt(n + 1/2)

  Of each conjugate pair only the eigenvalue with a negative imaginary part is
  returned: complex128 [size / 2], sorted by imaginary parts, and V complex128
  [size, size / 2].
  """
  n = np.arange(size)
  root = np.sqrt(2 * n + 1)
  hippo = -(np.tril(np.outer(root, root), -1) + np.diag(n + 1.0))
  p = np.sqrt(n + 0.5)
  normal = hippo + np.outer(p, p)
  imaginary, vectors = np.linalg.eigh(-1j * normal)
  values = np.mean(np.diag(normal)) + 1j * imaginary
  return values[:size // 2], vectors[:, :size // 2]


def log_uniform(low: float, high: float):
  """Returns an initialiser of log dt, for dt log-uniform in [low, high]."""
  if low > high:
    raise UserError(
        f'config.model.dt_min={low} is above config.model.dt_max={high}: '
        'exchange them.')

  def init(key, shape, dtype=jnp.float32):
    return jax.random.uniform(
        key, shape, dtype, math.log(low), math.log(high))

  return init


def step_bias(low: float, high: float):
  """Returns an initialiser of b: softplus(b) is log-uniform in [low, high]."""
  log_step = log_uniform(low, high)

  def init(key, shape, dtype=jnp.float32):
    step = jnp.exp(log_step(key, shape, dtype))
    return step + jnp.log(-jnp.expm1(-step))

  return init


def discretise(rate: jax.Array, step: jax.Array,
               method: str) -> tuple[jax.Array, jax.Array]:
  """Returns (log a, factor) of h_t = a h_(t-1) + factor b u_t.

  This discretises dh/dt = rate h + b u, with a complex64 rate that is not 0.

    zoh: a = exp(rate dt),  factor = (a - 1) / rate
    bilinear: a = (1 + rate dt / 2) / (1 - rate dt / 2),
      factor = dt / (1 - rate dt / 2)
  """
  z = rate * step.astype(rate.dtype)
  if method == 'zoh':
    return z, jnp.expm1(z) / rate
  below = 1 - z / 2
  return jnp.log((1 + z / 2) / below), step.astype(rate.dtype) / below


def as_complex(pair: jax.Array) -> jax.Array:
  """Turns float32 [..., 2], real and imaginary parts, into complex64 [...]."""
  return jax.lax.complex(pair[..., 0], pair[..., 1])


def as_pair(z: np.ndarray) -> jax.Array:
  """Inverts `as_complex`: complex [...] to float32 [..., 2]."""
  return jnp.stack([z.real, z.imag], -1).astype(jnp.float32)


def into_states(x_BxLxD, b_NxD, dtype: jnp.dtype) -> jax.Array:
  """Returns B x, complex64 [B, L, N], by one real matmul in `dtype`."""
  weight_DxE = jnp.concatenate([b_NxD.real, b_NxD.imag]).T
  y_BxLxE = contraction.einsum(
      'bld,de->ble', x_BxLxD.astype(dtype), weight_DxE.astype(dtype),
      dtype=jnp.float32)
  return jax.lax.complex(*jnp.split(y_BxLxE, 2, axis=-1))


def out_of_states(h_BxLxN, c_DxN, dtype: jnp.dtype) -> jax.Array:
  """Returns the real part of C h, float32 [B, L, D], by one real matmul."""
  h_BxLxE = jnp.concatenate([h_BxLxN.real, h_BxLxN.imag], -1)
  weight_ExD = jnp.concatenate([c_DxN.real, -c_DxN.imag], -1).T
  return contraction.einsum(
      'ble,ed->bld', h_BxLxE.astype(dtype), weight_ExD.astype(dtype),
      dtype=jnp.float32)


class GatedOutput(nn.Module):
  """Applies GELU, dropout and a gate, as S4, S5 and LRU do.

  For an output y [B, L, E], dense layers W and V, and g = GELU(y):

    gelu: g,  half_glu1: g sigmoid(W g),  half_glu2: y sigmoid(W g),
    full_glu: (V g) sigmoid(W g)

  Source: Dauphin et al. 2017, arXiv 1612.08083; Smith et al. 2023,
  arXiv 2208.04933, appendix G.1, and the released code

  GELU is approximated by tanh unless `exact`, as in S4. A `width` D other than
  0 is that of `full_glu`.
  """
  activation: str
  dropout: float
  dtype: jnp.dtype
  exact: bool = False
  width: int = 0
  tie_dropout: bool = False

  @nn.compact
  def __call__(self, y_BxLxE, *, train: bool) -> jax.Array:
    g_BxLxE = nn.gelu(y_BxLxE, approximate=not self.exact).astype(self.dtype)
    g_BxLxE = Dropout(self.dropout, self.tie_dropout, name='drop')(
        g_BxLxE, deterministic=not train)
    if self.activation == 'gelu':
      return g_BxLxE
    dense = {'features': self.width or y_BxLxE.shape[-1], 'dtype': self.dtype}
    gate_BxLxD = nn.sigmoid(Dense(**dense, name='gate')(g_BxLxE))
    if self.activation == 'half_glu2':
      return y_BxLxE.astype(self.dtype) * gate_BxLxD
    if self.activation == 'full_glu':
      g_BxLxE = Dense(**dense, name='value')(g_BxLxE)
    return g_BxLxE * gate_BxLxD
