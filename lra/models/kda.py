"""Kimi Delta Attention: a delta rule with a decay of each key channel.

Projections of low rank compute the decays and the output gate from the input;
both ranks are the width of a head's values. A bidirectional layer runs
convolutions and recurrence once from each end, with the same parameters; this
is not in the paper, whose models also have layers of softmax attention.

Equation: S'_t = diag(alpha_t) S_(t-1), S_t = S'_t + beta_t k_t^T (v_t - k_t
  S'_t), o_t = q_t S_t / sqrt(N), alpha_t = exp(-e^A softplus(W_2 W_1 x_t +
  dt)), q, k, v and beta as in DeltaNet; W_o (RMSNorm(o) sigmoid(W_4 W_3 x)) per
  head
Source: Kimi Team 2025, arXiv 2510.26692, equations 1 and 10 and section 4, and
  flash-linear-attention
"""

import flax.linen as nn

from lra.nn.contraction import Dense
from lra.nn.delta_mixer import DeltaMixer

FAMILY = 'state space'
COST = 'O(L D^2 / H)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla',)


class Mixer(DeltaMixer):
  """Kimi Delta Attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `DeltaMixer`; keys and values are D wide by default.
  """

  def log_decay(self, x_BxLxD):
    N, _ = self.heads(x_BxLxD.shape[-1])
    step_BxLxHxN = self._low_rank(x_BxLxD, N, 'decay')
    return self.decay_of(step_BxLxHxN, (self.num_heads, N), least=1.0)

  def gated(self, o_BxLxHxE, x_BxLxD):
    return o_BxLxHxE * nn.sigmoid(
        self._low_rank(x_BxLxD, o_BxLxHxE.shape[-1], 'gate'))

  def _low_rank(self, x_BxLxD, width, name):
    _, rank = self.heads(x_BxLxD.shape[-1])
    low_BxLxR = Dense(rank, use_bias=False, dtype=self.dtype,
                      name=f'{name}_down')(x_BxLxD)
    return self.project(low_BxLxR, width, f'{name}_up')
