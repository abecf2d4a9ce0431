"""Base class of mixers whose state follows a delta rule, such as DeltaNet.

Shapes: B batch, L length, D model width, H heads. N is the width of a head's
queries and keys, E that of its values.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra import kernels
from lra.nn import layers, norm, state_space
from lra.nn.matrix_state import EPS, MatrixStateMixer, width_argument
from lra.nn.mixer import resolve_kernel
from lra.nn.short_convolution import ShortConvolution, of_heads
from lra.schema import fields

DT_MIN, DT_MAX = 0.001, 0.1  # range of the initial steps of the decays


class DeltaMixer(MatrixStateMixer):
  """Computes `lra.kernels.delta_rule` of projections of the input.

  Queries, keys and values pass through a short convolution and SiLU; queries
  and keys are then scaled to length 1. A subclass may add decays with
  `log_decay` and an output gate with `gated`. A bidirectional mixer runs
  convolutions and recurrence once from each end, with the same parameters, and
  sums both before it normalises the heads.

  Attributes: those of `MatrixStateMixer`, and
    key_width: width of the queries of all heads together; 0 means the mixer's
      default.
    value_width: width of the values of all heads together, for one token; 0
      means the mixer's default.
    conv_width: number of tokens that the short convolutions read; 0 means no
      convolution.
    negative_eigenvalues: whether beta lies between 0 and 2 instead of 0 and 1.
      A step can then reverse a key's direction: Grazzi et al. 2024,
      arXiv 2411.12537.
    dtype: dtype of the matmuls; beta and decays are float32.

  Raises:
    UserError: num_heads does not divide a width, or an attribute has a value
      that is none of its choices.
  """
  key_width: int = width_argument()
  value_width: int = width_argument()
  conv_width: int = fields.argument(4, low=0, high=64)
  negative_eigenvalues: bool = False

  op = 'delta'
  # How often the delta rule is applied for each token.
  steps = 1

  def widths(self, width: int) -> tuple[int, int]:
    return self.key_width or width, self.value_width or width

  def kernel_for(self, length: int, width: int) -> str:
    """Returns the kernel that runs; see `HeadMixer.kernel_for`."""
    N, _ = self.heads(width)
    return resolve_kernel(
        self.op, self.kernel, (1, length, self.num_heads, N), self.dtype)

  def log_decay(self, x_BxLxD: jax.Array) -> jax.Array | None:
    """Returns float32 [B, L, H] or [B, L, H, N], or None for no decay."""
    del x_BxLxD

  def gated(self, o_BxLxHxE: jax.Array, x_BxLxD: jax.Array) -> jax.Array:
    """Applies the output gate to the normalised heads."""
    del x_BxLxD
    return o_BxLxHxE

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array, mask_BxL: jax.Array, *,
               train: bool) -> jax.Array:
    """Returns [B, L, D] from x [B, L, D] and mask [B, L], True = token."""
    del train
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    N, E = self.heads(x_BxLxD.shape[-1])
    projected = {
        name: self.project(x_BxLxD, width, name, times=steps)
        for name, width, steps in (
            ('query', N, 1), ('key', N, self.steps), ('value', E, self.steps))}
    beta_BxLxK = jax.nn.sigmoid(
        self.project(x_BxLxD, 1, 'beta', times=self.steps)[..., 0].astype(
            jnp.float32))
    if self.negative_eigenvalues:
      beta_BxLxK = 2 * beta_BxLxK
    log_decay = self.log_decay(x_BxLxD)
    convolutions = {
        name: ShortConvolution(self.conv_width, dtype=self.dtype,
                               name=f'{name}_convolution')
        for name in projected if self.conv_width}

    def operands(reverse):
      q, k, v = (
          of_heads(convolutions[name], y, mask_BxL, reverse)
          if convolutions else nn.silu(y) for name, y in projected.items())
      return self.operands(unit(q), unit(k), v, beta_BxLxK, log_decay, reverse)

    run = kernels.sharded(kernels.delta_rule)
    o_BxLxHxE = sum(self.both_ways(
        lambda q, k, v, beta, log_decay: run(
            q, k, v, beta=beta, log_decay=log_decay, scale=N**-0.5,
            kernel=self.kernel), operands, mask_BxL, self.steps))
    o_BxLxHxE = norm.RMSNorm(
        epsilon=EPS, dtype=self.dtype, name='norm')(o_BxLxHxE)
    return layers.merge_heads_and_project(
        self.gated(o_BxLxHxE, x_BxLxD), x_BxLxD.shape[-1], self.dtype,
        use_bias=False)

  def operands(self, q_BxLxHxN: jax.Array, k_BxLxKxN: jax.Array,
               v_BxLxKxE: jax.Array, beta_BxLxK: jax.Array,
               log_decay: jax.Array | None, reverse: bool) -> tuple:
    """Returns q, k, v, beta and log_decay with `steps` positions per token."""
    del reverse
    return q_BxLxHxN, k_BxLxKxN, v_BxLxKxE, beta_BxLxK, log_decay

  def decay_of(self, step: jax.Array, shape: tuple[int, ...],
               least: float = 0.0) -> jax.Array:
    """Returns -exp(A) softplus(step + dt_bias), the logarithm of a decay.

    Args:
      step: [B, L, *shape]; the result is float32.
      shape: (H,) or (H, N). `dt_bias` has this shape, and A is [H].
      least: lower end of the range of exp(A) at initialisation; the upper is
        16.
    """
    rate_H = jnp.exp(self.param('log_rate', _log_rate(least), shape[:1]))
    bias = self.param(
        'dt_bias', state_space.step_bias(DT_MIN, DT_MAX), shape)
    step = jax.nn.softplus(step.astype(jnp.float32) + bias[None, None])
    return -rate_H.reshape(1, 1, -1, *(1,) * (len(shape) - 1)) * step


def unit(x: jax.Array) -> jax.Array:
  """Returns x (sum(x^2) + 1e-6)^(-1/2) over the last axis, in float32.

  The constant is that of flash-linear-attention.
  """
  exact = x.astype(jnp.float32)
  square = jnp.square(exact).sum(-1, keepdims=True)
  return (exact * jax.lax.rsqrt(square + 1e-6)).astype(x.dtype)


def _log_rate(least):
  least = max(least, float(np.finfo(np.float32).tiny))
  return lambda key, shape: jnp.log(
      jax.random.uniform(key, shape, minval=least, maxval=16.0))
