"""What mixers share whose state follows a delta rule: DeltaNet and its kin.

Shapes: B batch, L length, D model width, H heads, N and E width of a head's
keys and values.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

import kernels
from lra.config import fields
from lra.errors import UserError
from lra.nn import direction, layers, norm
from lra.nn.mixer import resolve_kernel
from lra.nn.short_convolution import ShortConvolution

EPS = 1e-5  # of the norms of heads, as in the released code of these papers
DT_MIN, DT_MAX = 0.001, 0.1  # range of the initial steps of the decays


class DeltaMixer(direction.DirectedMixer):
  """A mixer around `kernels.delta_rule`.

  Queries, keys and values pass through a short convolution and SiLU; queries
  and keys are then scaled to length 1. A subclass may add decays with
  `log_decay` and an output gate with `gated`. A bidirectional mixer runs
  convolutions and recurrence once from each end, with the same parameters, and
  sums both before it normalises the heads.

  Attributes: those of `DirectedMixer`, and
    num_heads: H.
    key_width: width of all queries; 0 for the default of the mixer.
    value_width: width of all values that a token reads; 0 for the default.
    conv_width: tokens that a short convolution reads; 0 for none.
    negative_eigenvalues: whether beta lies between 0 and 2 instead of 0 and 1.
      A step can then turn a key's direction around: Grazzi et al. 2024,
      arXiv 2411.12537.
    kernel: 'auto' or one of `KERNELS`.
    dtype: dtype of the matmuls; beta and decays are float32.

  Raises:
    UserError: the heads do not divide the widths, or an unknown choice.
  """
  num_heads: int = 8
  key_width: int = fields.argument(0, low=0, high=fields.MANY)
  value_width: int = fields.argument(0, low=0, high=fields.MANY)
  conv_width: int = fields.argument(4, low=0, high=64)
  negative_eigenvalues: bool = False
  kernel: str = 'auto'

  op = 'delta'
  # Steps of the rule for each token.
  steps = 1

  def widths(self, width: int) -> tuple[int, int]:
    """Returns the widths of all heads' keys and values for D."""
    return self.key_width or width, self.value_width or width

  def head_widths(self, width: int) -> tuple[int, int]:
    """Returns N and E."""
    for total in self.widths(width):
      if not total or total % self.num_heads:
        raise UserError(
            f'config.model.num_heads={self.num_heads} does not divide a width '
            f'of {total} of keys or values: choose another number of heads, or '
            'config.model.key_width and value_width that it divides.')
    return tuple(total // self.num_heads for total in self.widths(width))

  def state_size(self, width: int) -> int:
    """Returns how many numbers pass from token to token, in all directions."""
    N, E = self.head_widths(width)
    return self.num_heads * N * E * direction.passes(self.direction)

  def kernel_for(self, length: int, width: int) -> str:
    """Returns the kernel that runs; see `HeadMixer.kernel_for`."""
    N, _ = self.head_widths(width)
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
    N, E = self.head_widths(x_BxLxD.shape[-1])
    projected = {
        name: self.project(x_BxLxD, width, name, steps)
        for name, width, steps in (
            ('query', N, 1), ('key', N, self.steps), ('value', E, self.steps))}
    beta_BxLxK = jax.nn.sigmoid(
        self.project(x_BxLxD, 1, 'beta', self.steps)[..., 0].astype(
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
          _convolved(convolutions.get(name), y, mask_BxL, reverse)
          for name, y in projected.items())
      return self.operands(unit(q), unit(k), v, beta_BxLxK, log_decay, reverse)

    o_BxLxHxE = self._attend(operands, mask_BxL)
    o_BxLxHxE = norm.RMSNorm(
        epsilon=EPS, dtype=self.dtype, name='norm')(o_BxLxHxE)
    return layers.merge_heads_and_project(
        self.gated(o_BxLxHxE, x_BxLxD), x_BxLxD.shape[-1], self.dtype,
        use_bias=False)

  def project(self, x_BxLxI: jax.Array, width: int, name: str,
              times: int = 1) -> jax.Array:
    """Projects to `times` H heads of `width`: [B, L, times * H, width]."""
    heads = times * self.num_heads
    return layers.Projection((x_BxLxI.shape[-1],), (heads, width), self.dtype,
                             use_bias=False, name=name)(x_BxLxI)

  def operands(self, q_BxLxHxN: jax.Array, k_BxLxKxN: jax.Array,
               v_BxLxKxE: jax.Array, beta_BxLxK: jax.Array,
               log_decay: jax.Array | None, reverse: bool) -> tuple:
    """Returns q, k, v, beta and log_decay of `steps` tokens for each token."""
    del reverse
    return q_BxLxHxN, k_BxLxKxN, v_BxLxKxE, beta_BxLxK, log_decay

  def _attend(self, operands, mask_BxL):
    """Runs the recurrence from one end or both: their sum, [B, L, H, E].

    Both runs are one call, with twice as many heads: it compiles in half the
    time, and its loop over chunks has half the steps.
    """
    runs = (False, True)[:direction.passes(self.direction)]
    mask_BxT = jnp.repeat(mask_BxL, self.steps, axis=1)
    given = [jax.tree.map(functools.partial(_turned, mask_BxT, reverse),
                          operands(reverse)) for reverse in runs]
    q, k, v, beta, log_decay = jax.tree.map(
        lambda *y: jnp.concatenate(y, axis=2), *given)
    o_BxTxKxE = kernels.sharded(kernels.delta_rule)(
        q, k, v, beta=beta, log_decay=log_decay, scale=q.shape[-1]**-0.5,
        kernel=self.kernel)
    o_BxLxKxE = o_BxTxKxE[:, self.steps - 1::self.steps]
    return sum(_turned(mask_BxL, reverse, o, back=True) for reverse, o in zip(
        runs, jnp.split(o_BxLxKxE, len(runs), axis=2), strict=True))

  def decay_of(self, step: jax.Array, shape: tuple[int, ...],
               least: float = 0.0) -> jax.Array:
    """Returns -exp(A) softplus(step + dt_bias), the logarithm of a decay.

    Args:
      step: [B, L, *shape]; the result is float32.
      shape: (H,) or (H, N). `dt_bias` has this shape, and A is [H].
      least: exp(A) starts between it and 16.
    """
    rate_H = jnp.exp(self.param('log_rate', _log_rate(least), shape[:1]))
    bias = self.param('dt_bias', _dt_bias, shape)
    step = jax.nn.softplus(step.astype(jnp.float32) + bias[None, None])
    return -rate_H.reshape(1, 1, -1, *(1,) * (len(shape) - 1)) * step


def unit(x: jax.Array) -> jax.Array:
  """Returns x (sum(x^2) + 1e-6)^(-1/2) over the last axis, in float32.

  The constant is that of flash-linear-attention.
  """
  exact = x.astype(jnp.float32)
  square = jnp.square(exact).sum(-1, keepdims=True)
  return (exact * jax.lax.rsqrt(square + 1e-6)).astype(x.dtype)


def _turned(mask_BxT, reverse, y, back=False):
  """Returns y with 0 at masked tokens, which then do nothing, maybe reversed.

  With `back` y is reversed and the mask is not.
  """
  y = jnp.flip(y, 1) if reverse and back else y
  y = jnp.where(mask_BxT.reshape(*mask_BxT.shape, *(1,) * (y.ndim - 2)), y, 0)
  return jnp.flip(y, 1) if reverse and not back else y


def _convolved(convolution, y_BxLxHxW, mask_BxL, reverse):
  """Convolves each channel of the heads; without a convolution only SiLU."""
  if convolution is None:
    return nn.silu(y_BxLxHxW)
  y_BxLxE = y_BxLxHxW.reshape(*mask_BxL.shape, -1)
  return convolution(y_BxLxE, mask_BxL, reverse).reshape(y_BxLxHxW.shape)


def _log_rate(least):
  least = max(least, float(np.finfo(np.float32).tiny))
  return lambda key, shape: jnp.log(
      jax.random.uniform(key, shape, minval=least, maxval=16.0))


def _dt_bias(key, shape):
  """Draws steps log-uniform in DT_MIN ... DT_MAX; returns softplus^-1."""
  dt = jnp.exp(jax.random.uniform(
      key, shape, minval=math.log(DT_MIN), maxval=math.log(DT_MAX)))
  return dt + jnp.log(-jnp.expm1(-dt))
