"""Mixers whose state follows a delta rule, such as DeltaNet.

Shapes: see `lra.nn.matrix_state`; K = `steps` H, for `steps` applications of
the rule to each token.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lra import kernels
from lra.kernels import xla
from lra.nn import state_space
from lra.nn.matrix_state import MatrixStateMixer, width_argument
from lra.schema import fields

DT_MIN, DT_MAX = 0.001, 0.1  # range of the initial steps of the decays


class DeltaMixer(MatrixStateMixer):
  """A mixer that runs `lra.kernels.delta_rule`."""
  key_width: int = width_argument(
      "queries of all heads together; 0 means the mixer's default.")
  value_width: int = width_argument(
      'values of all heads together, for one token; 0 means the mixer\'s '
      'default.')
  conv_width: int = fields.argument(
      4, 'Number of tokens that the short convolutions read; 0 means no '
      'convolution.', low=0, high=64)
  negative_eigenvalues: bool = fields.argument(
      False, 'Whether beta lies between 0 and 2 instead of 0 and 1. A step can '
      "then reverse a key's direction: Grazzi et al. 2024, arXiv 2411.12537.")

  op = 'delta'
  steps = 1

  def widths(self, width):
    return self.key_width or width, self.value_width or width

  def log_decay(self, x_BxLxD) -> jax.Array | None:
    """Returns float32 [B, L, H] or [B, L, H, N], or None for no decay."""

  def mix(self, x_BxLxD, mask_BxL):
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
    convolved = self.convolved(projected, mask_BxL, bare=nn.silu)
    run = kernels.sharded(kernels.delta_rule)

    def operands(reverse):
      q, k, v = convolved(reverse)
      k, beta = unit(k), beta_BxLxK
      if self.negative_eigenvalues:
        # Rounded keys may be longer than 1. If beta k.k exceeded 2, the state
        # could grow without bound.
        exact = jax.lax.stop_gradient(k).astype(jnp.float32)
        beta /= jnp.maximum(1, jnp.square(
            xla.rounded(exact, k.dtype)).sum(-1))
      return self.operands(unit(q), k, v, beta, log_decay, reverse)

    return self.merge(sum(self.both_ways(
        lambda q, k, v, beta, log_decay: run(
            q, k, v, beta=beta, log_decay=log_decay, scale=N**-0.5,
            kernel=self.kernel), operands, mask_BxL, self.steps)), x_BxLxD)

  def operands(self, q_BxLxHxN, k_BxLxKxN, v_BxLxKxE, beta_BxLxK, log_decay,
               reverse: bool) -> tuple:
    """Returns q, k, v, beta and log_decay with `steps` positions per token."""
    del reverse
    return q_BxLxHxN, k_BxLxKxN, v_BxLxKxE, beta_BxLxK, log_decay

  def decay_of(self, step: jax.Array, shape: tuple[int, ...],
               least: float = 0.0) -> jax.Array:
    """Returns the log decay -exp(A) softplus(step + dt_bias), in float32.

    `shape` is (H,) or (H, N); A is [H], and exp(A) starts in [least, 16].
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
