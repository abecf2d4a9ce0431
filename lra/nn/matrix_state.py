"""Mixers that keep one matrix per head, [N, E], as their state.

  S_t = diag(a_t) S_(t-1) + k_t^T v_t,  o_t = q_t S_t

`GatedMixer` computes this recurrence, with a gate a of each head or channel. A
bidirectional mixer runs it once from each end, with the same parameters, and
sums both before it normalises the heads.

Shapes: B batch, L length, D model width, H heads. N is the width of a head's
queries and keys, E that of its values, G the number of groups of heads that
share queries and keys.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.core.errors import UserError
from lra.nn import layers, norm, state_space
from lra.nn.contraction import Dense
from lra.nn.convolution import ShortConvolution
from lra.nn.direction import DirectedMixer
from lra.schema import fields

EPS = 1e-5  # epsilon of the heads' norms, as in the papers' released code


class MatrixStateMixer(DirectedMixer):
  """A mixer with matrix states; a subclass defines `mix`."""
  num_heads: int = 8
  kernel: str = 'auto'

  sums = 0  # number of columns that values have in addition to E
  gains = 1.0, 1.0  # factors of the initial projections, and of W_o

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train: bool, **given) -> jax.Array:
    del train  # nothing is random
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    return self.mix(x_BxLxD, mask_BxL, **given)

  def widths(self, width: int) -> tuple[int, int]:
    """Returns the total widths of queries and of values for model width D."""
    return width, width

  def heads(self, width: int) -> tuple[int, int]:
    """Returns N and E."""
    for total in self.widths(width):
      if not total or total % self.num_heads:
        raise UserError(
            f'config.model.num_heads={self.num_heads} does not divide a width '
            f'of {total} of queries or values: choose another number of heads, '
            'or widths that it divides.')
    return tuple(total // self.num_heads for total in self.widths(width))

  def kernel_call(self, length, width):
    N, _ = self.heads(width)
    return {'shape': (1, length, self.num_heads, N), 'dtype': self.dtype}

  def state_size(self, width: int) -> int:
    N, E = self.heads(width)
    return self.num_heads * N * (E + self.sums) * self.passes

  def dense(self, width: int, name: str, **start: Callable) -> nn.Dense:
    return Dense(width, dtype=self.dtype, use_bias=False, name=name, **start)

  def projection(self, ins: int, width: int, name: str,
                 use_bias: bool = False, times: int = 1) -> layers.Projection:
    """Returns a projection [B, L, ins] -> [B, L, times * H, width]."""
    return layers.Projection((ins,), (times * self.num_heads, width),
                             self.dtype, use_bias, self.gains[0], name=name)

  def project(self, x_BxLxI, width: int, name: str, use_bias: bool = False,
              times: int = 1) -> jax.Array:
    """Projects to `times` H heads of `width`: [B, L, times * H, width]."""
    return self.projection(
        x_BxLxI.shape[-1], width, name, use_bias, times)(x_BxLxI)

  def convolved(self, projected: dict[str, jax.Array], mask_BxL,
                bare: Callable = lambda y: y) -> Callable[[bool], list]:
    """Returns a function of `reverse`: all projections, each convolved.

    If `conv_width` is 0, the function applies `bare` instead.
    """
    if not self.conv_width:
      return lambda reverse: [bare(y) for y in projected.values()]
    made = {name: ShortConvolution(self.conv_width, dtype=self.dtype,
                                   name=f'{name}_convolution')
            for name in projected}

    def way(reverse):
      return [made[name](y.reshape(*mask_BxL.shape, -1), mask_BxL, reverse)
              .reshape(y.shape) for name, y in projected.items()]

    return way

  def both_ways(self, run: Callable, operands: Callable[[bool], tuple],
                mask_BxL, steps: int = 1) -> list[jax.Array]:
    """Runs a recurrence from the first token on; if bidirectional, both ways.

    Both ways are one call, with twice as many heads: it compiles in half the
    time, and fills a GPU better.

    `operands(reverse)` gives the arguments of `run`, arrays [B, T, H, ...] or
    None, which become 0 at masked tokens. `steps` adjacent positions in T
    belong to one token, whose output is that of the last. Returns the outputs
    of each direction, [B, L, H, E]; 0 at masked tokens.
    """
    runs = (False, True)[:self.passes]
    mask_BxT = jnp.repeat(mask_BxL, steps, axis=1)
    given = [jax.tree.map(lambda y, reverse=reverse: _turned(
        _kept(mask_BxT, y), reverse), operands(reverse)) for reverse in runs]
    o_BxTxH = run(*jax.tree.map(
        lambda *y: jnp.concatenate(y, axis=2), *given))
    o_BxLxH = o_BxTxH[:, steps - 1::steps]
    return [_kept(mask_BxL, _turned(y, reverse)) for y, reverse in zip(
        jnp.split(o_BxLxH, len(runs), axis=2), runs, strict=True)]

  def merge(self, o_BxLxHxE, x_BxLxD) -> jax.Array:
    """Returns W_o gated(RMSNorm(o)), with a norm of each head."""
    o_BxLxHxE = norm.RMSNorm(
        epsilon=EPS, dtype=self.dtype, name='norm')(o_BxLxHxE)
    return layers.merge_heads_and_project(
        self.gated(o_BxLxHxE, x_BxLxD), x_BxLxD.shape[-1], self.dtype,
        use_bias=False, gain=self.gains[1])

  def gated(self, o_BxLxHxE, x_BxLxD) -> jax.Array:
    """Returns o SiLU(W_g x)."""
    return o_BxLxHxE * nn.silu(
        self.project(x_BxLxD, o_BxLxHxE.shape[-1], 'gate'))


class GatedMixer(MatrixStateMixer):
  """A mixer that runs `lra.kernels.gated_linear_attention`.

  A subclass defines `operands`, or `mix` if it does not end with `merge`.
  """
  op = 'gated'
  per_channel = False  # whether each channel has a gate of its own
  scaled = False  # whether queries are divided by sqrt(N)
  groups = 0  # groups of heads that share queries and keys; 0 for none

  def kernel_call(self, length, width):
    _, E = self.heads(width)
    return {**super().kernel_call(length, width),
            'value_width': E + self.sums, 'channels': self.per_channel,
            'groups': self.groups or self.num_heads}

  def operands(self, x_BxLxD, mask_BxL) -> Callable[[bool], tuple]:
    """Returns the function of `reverse` that `attend` takes."""
    raise NotImplementedError

  def mix(self, x_BxLxD, mask_BxL):
    return self.merge(
        sum(self.attend(self.operands(x_BxLxD, mask_BxL), mask_BxL)), x_BxLxD)

  def attend(self, operands: Callable[[bool], tuple], mask_BxL
             ) -> list[jax.Array]:
    """Runs the recurrence from one end, or from both; see `both_ways`.

    `operands(reverse)` gives q, k [B, L, H, N], v [B, L, H, E] and log decays
    [B, L, H] or [B, L, H, N]. With `sums` 1, values get a column of ones, whose
    output is the sum of the weights: outputs are float32 [B, L, H, E + 1].
    """
    run = kernels.sharded(kernels.gated_linear_attention)

    def given(reverse):
      q, k, v, log_decay = operands(reverse)
      return q, k, ones_behind(v) if self.sums else v, log_decay

    ways = self.both_ways(
        lambda q, k, v, log_decay: run(
            q, k, v, log_decay=log_decay.astype(jnp.float32),
            scale=q.shape[-1]**-0.5 if self.scaled else 1.0,
            kernel=self.kernel), given, mask_BxL)
    return [o.astype(jnp.float32) for o in ways] if self.sums else ways


class SelectiveMixer(GatedMixer):
  """Base class of Mamba-2 and Hydra, whose time steps depend on the input.

  Each head is a state space with one rate A < 0. A token chooses the step dt:

    S_t = exp(dt_t A) S_(t-1) + dt_t B_t^T x_t,  dt_t = softplus(W x_t + bias)

  Source: Dao and Gu 2024, arXiv 2405.21060, sections 6 and 7, and the released
  code of Mamba-2
  """
  expand: int = fields.argument(
      2, 'Width of all heads together, as a multiple of D: H * E / D.', low=1,
      high=64)
  state_dim: int = fields.count(64, 'Number of states of each channel, N.')
  groups: int = fields.count(
      1, 'Number of groups of heads that share queries and keys, G; must '
      'divide num_heads.')
  conv_width: int = fields.argument(
      4, 'Number of tokens that the short convolution reads.', low=1, high=64)
  dt_min: float = fields.argument(
      0.001, 'Range of the initial dt of a zero input.', above=0, high=1000.0)
  dt_max: float = fields.argument(
      0.1, 'Range of the initial dt of a zero input.', above=0, high=1000.0)

  def widths(self, width):
    return self.num_heads * self.state_dim, self.expand * width

  def heads(self, width):
    if self.num_heads % self.groups:
      raise UserError(
          f'config.model.groups={self.groups} does not divide '
          f'config.model.num_heads={self.num_heads}: choose a divisor.')
    return super().heads(width)

  def steps(self, y_BxLxMxH, rate_init: Callable
            ) -> tuple[jax.Array, jax.Array]:
    """Returns dt and dt A, float32 in the shape of y = W x, [..., H].

    `rate_init` initialises -A.
    """
    bias_H = self.param(
        'step_bias', state_space.step_bias(self.dt_min, self.dt_max),
        (self.num_heads,))
    log_rate_H = self.param(
        'log_rate', lambda *args: jnp.log(rate_init(*args)), (self.num_heads,))
    lead = (None,) * (y_BxLxMxH.ndim - 1)
    dt = jax.nn.softplus(y_BxLxMxH.astype(jnp.float32) + bias_H[lead])
    return dt, dt * -jnp.exp(log_rate_H[lead])


def width_argument(of: str):
  """Returns a field for the width `of` all heads; 0 stands for a default."""
  return fields.argument(0, f'Width of the {of}', low=0, high=fields.MANY)


def times(x: jax.Array, factor: jax.Array) -> jax.Array:
  """Returns x [..., H, E] times float32 [..., H], in the dtype of x."""
  return (x.astype(jnp.float32) * factor[..., None]).astype(x.dtype)


def ones_behind(v_BxLxHxE) -> jax.Array:
  """Appends a column of ones: [B, L, H, E + 1]."""
  return jnp.pad(v_BxLxHxE, [(0, 0)] * 3 + [(0, 1)], constant_values=1)


def _kept(mask_BxT, y):
  """Returns y with 0 at masked tokens, which then do not change the state."""
  keep = mask_BxT.reshape(*mask_BxT.shape, *(1,) * (y.ndim - 2))
  return jnp.where(keep, y, 0)


def _turned(y, reverse):
  return jnp.flip(y, 1) if reverse else y
