"""mLSTM: the matrix memory of xLSTM, with exponential input gates.

State and sums are divided by exp(m), with the stabiliser m_t = max(log f_t +
m_(t-1), i_t), which does not change the result. Then all gates are at most 1,
and the recurrence is gated linear attention. The block is that of the paper's
figure 11; the bidirectional form is not in the paper. As in the package, the
divisor of a token gets 1e-6 more, after the division by exp(m).

Equation: C_t = f_t C_(t-1) + e^(i_t) k_t^T v_t, n_t = f_t n_(t-1) + e^(i_t)
  k_t, h_t = q_t C_t / max(|q_t . n_t|, 1); W_o ((LayerNorm(h) + s c) SiLU(z))
Source: Beck et al. 2024, arXiv 2405.04517, section 2.3 and appendix B, and the
  package xlstm
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.core.errors import UserError
from lra.models import About
from lra.nn import norm
from lra.nn.contraction import Dense
from lra.nn.convolution import ShortConvolution
from lra.nn.matrix_state import EPS, GatedMixer, times
from lra.schema import fields

ABOUT = About('state space', 'O(L D^2)', kernels=('xla',))

GATES = ('sigmoid', 'exponential')
NEVER = -1e30  # log of a closed gate; finite, so that differences are no NaN
LEAST = 1e-6  # sums of weights may cancel


class Mixer(GatedMixer):
  expand: int = fields.argument(
      2, 'Width of all heads together, as a multiple of D.', low=1, high=64)
  block_width: int = fields.count(
      4, 'Number of channels in a block, a divisor of expand D; queries, keys '
      'and values are projected block by block.')
  conv_width: int = fields.argument(
      4, 'Number of tokens that the short convolution reads.', low=1, high=64)
  forget_gate: str = fields.argument(
      'sigmoid', 'Function of the forget gate: `sigmoid` or `exponential`.',
      choices=GATES)
  released: bool = fields.argument(
      True, 'Whether the projections at both ends start as in the package '
      '(deviations (2 / 5D)^(1/2) and 2 / (layers D^(1/2))), and 1e-6 is '
      'added to divisors. In older records (False) they start by LeCun, and '
      '1e-6 is the smallest divisor.')
  num_layers: int = 1

  sums = 1
  scaled = True

  def widths(self, width):
    return self.expand * width, self.expand * width

  def state_size(self, width: int) -> int:
    stabilisers = self.num_heads * self.passes
    return super().state_size(width) + stabilisers

  def mix(self, x_BxLxD, mask_BxL):
    D = x_BxLxD.shape[-1]
    N, _ = self.heads(D)
    inner, lead = self.expand * D, x_BxLxD.shape[:2]
    if inner % self.block_width:
      raise UserError(
          f'config.model.block_width={self.block_width} does not divide '
          f'{inner} channels: choose a divisor.')
    small = nn.initializers.normal((2 / (5 * D))**0.5)
    ends = {'kernel_init': small} if self.released else {}
    u_BxLxI = self.dense(inner, 'inputs', **ends)(x_BxLxD)
    z_BxLxI = self.dense(inner, 'gate', **ends)(x_BxLxD)
    convolution = ShortConvolution(
        self.conv_width, use_bias=True, dtype=self.dtype, name='convolution')
    weights = {name: self.param(
        name, small, (inner // self.block_width, *[self.block_width] * 2))
               for name in ('query', 'key', 'value')}
    gates = {
        name: Dense(self.num_heads, dtype=self.dtype, bias_init=bias_init,
                    kernel_init=nn.initializers.zeros, name=name)
        for name, bias_init in (('input_gate', nn.initializers.normal(0.1)),
                                ('forget_gates', _spread))}
    v_BxLxI = _in_blocks(u_BxLxI, weights['value'])
    keep_BxLx1 = mask_BxL[..., None]

    def way(reverse):
      c_BxLxI = convolution(u_BxLxI, mask_BxL, reverse)
      q, k = (_in_blocks(c_BxLxI, weights[name]) for name in ('query', 'key'))
      inputs_BxLxJ = jnp.concatenate([q, k, v_BxLxI], axis=-1)
      log_i, log_f = (gates[name](inputs_BxLxJ).astype(jnp.float32)
                      for name in ('input_gate', 'forget_gates'))
      if self.forget_gate == 'sigmoid':
        log_f = jax.nn.log_sigmoid(log_f)
      log_i = jnp.where(keep_BxLx1, log_i, NEVER)
      log_f = jnp.where(keep_BxLx1, log_f, 0)
      m_BxLxH, before_BxLxH = _stabiliser(log_i, log_f, reverse)
      q, k, v = (y.reshape(*lead, self.num_heads, N) for y in (q, k, v_BxLxI))
      return (q, times(k, jnp.exp(log_i - m_BxLxH)), v,
              log_f + (before_BxLxH - m_BxLxH)), c_BxLxI, m_BxLxH

    ways = [way(bool(i)) for i in range(self.passes)]
    h_BxLxHxE = 0
    for o_BxLxHxE, (_, _, m_BxLxH) in zip(
        self.attend(lambda reverse: ways[reverse][0], mask_BxL), ways,
        strict=True):
      least, more = (0, LEAST) if self.released else (LEAST, 0)
      least_BxLxHx1 = jnp.maximum(least, jnp.exp(
          jnp.minimum(-m_BxLxH, 80)))[..., None]
      h_BxLxHxE += o_BxLxHxE[..., :-1] / (more + jnp.maximum(
          jnp.abs(o_BxLxHxE[..., -1:]), least_BxLxHx1))
    scale_I, skip_I = (self.param(name, nn.initializers.ones, (inner,))
                       for name in ('norm', 'skip'))
    c_BxLxI = sum(c.astype(jnp.float32) for _, c, _ in ways)
    h_BxLxI = (norm.standardise(h_BxLxHxE, EPS).reshape(*lead, inner)
               * scale_I[None, None] + c_BxLxI * skip_I[None, None])
    if self.released:
      ends = {'kernel_init': nn.initializers.normal(
          2 / self.num_layers / D**0.5)}
    return self.dense(D, 'out', **ends)(
        h_BxLxI.astype(self.dtype) * nn.silu(z_BxLxI))


def _spread(key, shape, dtype=jnp.float32):
  """Returns initial logits of the forget gates, spread from 3 to 6."""
  del key
  return jnp.linspace(3.0, 6.0, *shape, dtype=dtype)


def _in_blocks(x_BxLxI, weight_KxWxW):
  """Projects each block of channels by a matrix of its own."""
  blocks = x_BxLxI.reshape(*x_BxLxI.shape[:2], *weight_KxWxW.shape[:2])
  return jnp.einsum('blki,kio->blko', blocks, weight_KxWxW.astype(
      x_BxLxI.dtype)).reshape(x_BxLxI.shape)


def _stabiliser(log_i_BxLxH, log_f_BxLxH, reverse):
  """Returns m of each token and of the token before it, without gradients.

    m_t = max(log f_t + m_(t-1), log i_t),  m_0 = NEVER
  """
  log_i, log_f = (jax.lax.stop_gradient(y) for y in (log_i_BxLxH, log_f_BxLxH))
  if reverse:
    log_i, log_f = jnp.flip(log_i, 1), jnp.flip(log_f, 1)

  def join(first, second):
    return first[0] + second[0], jnp.maximum(first[1] + second[0], second[1])

  _, m = jax.lax.associative_scan(join, (log_f, log_i), axis=1)
  before = jnp.pad(m[:, :-1], [(0, 0), (1, 0), (0, 0)], constant_values=NEVER)
  return (jnp.flip(m, 1), jnp.flip(before, 1)) if reverse else (m, before)
