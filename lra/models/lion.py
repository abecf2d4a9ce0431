"""LION: linear attention over the whole sequence, as a recurrence of two ways.

The weight of a token that is read is the product of its gate and of the gates
of all tokens between it and the reader. `decay` chooses the gates of LION-LIT
(a = 1), LION-D or LION-S. The recurrences from both ends each contain the token
itself; it is subtracted once. In LION-S the gate of the first token, usually
CLS, is 1, as in the released code.

In the released image models the gates start around 1/2, the default `short`.
The paper's models for Long Range Arena start from HiPPO to remember long
sequences; their code is not released.

Equation: y_i = sum_j m_ij (q_i . k_j) v_j / sum_j m_ij (q_i . k_j), m_ij =
  a_j ... a_(i - 1) for j < i, a_(i + 1) ... a_j for j > i, m_ii = 1; q, k =
  phi(W x), phi(x) = (SiLU(x) + 1/2) / ||SiLU(x) + 1/2||, or elu(x) + 1 for LIT
Source: Afzal et al. 2025, arXiv 2502.16249, sections 3 and 4, and the released
  code
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import About
from lra.nn import arrays, layers, state_space
from lra.nn.matrix_state import GatedMixer, ones_behind
from lra.schema import fields

ABOUT = About('linear', 'O(L D^2 / H)', kernels=('xla',))

DECAYS = ('none', 'fixed', 'selective')
MEMORIES = ('short', 'long')
EPS = 1e-6  # added to the sum of the weights, as in the released code
LONG = 0.001, 0.1  # range of 1 - a at the start with memory `long`


class Mixer(GatedMixer):
  decay: str = fields.argument(
      'selective', '`none`, `fixed` (a gate for each head) or `selective` (a '
      'gate for each head and token).', choices=DECAYS)
  memory: str = fields.argument(
      'short', 'Initial gates: `short` means around 1/2; `long` means 1 - x '
      'with x between 0.001 and 0.1, log-uniform.', choices=MEMORIES)
  released: bool = fields.argument(
      True, 'Whether a selective gate of the first token is 1, as in the '
      'released code. In older records it is like the others (False).')

  sums = 1

  def mix(self, x_BxLxD, mask_BxL):
    N, _ = self.heads(x_BxLxD.shape[-1])
    q, k, v = (self.project(x_BxLxD, N, name) for name in layers.QKV)
    q, k = (self._features(y).astype(self.dtype) for y in (q, k))
    log_a_BxLxH = self._log_gates(x_BxLxD)
    if self.released and self.decay == 'selective':
      first_BxL = mask_BxL & (mask_BxL.cumsum(1) == 1)
      log_a_BxLxH = jnp.where(first_BxL[..., None], 0, log_a_BxLxH)
    o_BxLxHxE = sum(self.attend(
        lambda reverse: (q, k, v, arrays.token_before(
            log_a_BxLxH, mask_BxL, reverse)), mask_BxL))
    if not self.causal:
      own_BxLxHx1 = (q.astype(jnp.float32) * k.astype(jnp.float32)).sum(
          -1, keepdims=True)
      o_BxLxHxE -= own_BxLxHx1 * ones_behind(v).astype(jnp.float32)
    o_BxLxHxE = o_BxLxHxE[..., :-1] / (o_BxLxHxE[..., -1:] + EPS)
    return layers.merge_heads_and_project(
        o_BxLxHxE.astype(self.dtype), x_BxLxD.shape[-1], self.dtype)

  def _features(self, y_BxLxHxN):
    y_BxLxHxN = y_BxLxHxN.astype(jnp.float32)
    if self.decay == 'none':
      return nn.elu(y_BxLxHxN) + 1
    y_BxLxHxN = nn.silu(y_BxLxHxN) + 0.5  # above 0.2
    return y_BxLxHxN * jax.lax.rsqrt(
        jnp.square(y_BxLxHxN).sum(-1, keepdims=True))

  def _log_gates(self, x_BxLxD):
    shape = *x_BxLxD.shape[:2], self.num_heads
    if self.decay == 'none':
      return jnp.zeros(shape, jnp.float32)
    logit_BxLxH = self.param(
        'forget', self._start, (self.num_heads,))[None, None]
    if self.decay == 'selective':
      logit_BxLxH += nn.Dense(
          self.num_heads, dtype=self.dtype, use_bias=False,
          kernel_init=nn.initializers.normal(0.02), name='forget_of_input')(
              x_BxLxD).astype(jnp.float32)
    return jnp.broadcast_to(jax.nn.log_sigmoid(-logit_BxLxH), shape)

  def _start(self, key, shape):
    """Returns the initial logits of 1 - a, one for each head."""
    if self.memory == 'long':
      rest_H = jnp.exp(state_space.log_uniform(*LONG)(key, shape))
      return jnp.log(rest_H) - jnp.log1p(-rest_H)
    return (jax.random.normal(key, shape) if self.decay == 'fixed'
            else jnp.zeros(shape))
