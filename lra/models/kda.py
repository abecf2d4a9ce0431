"""Kimi Delta Attention: a delta rule with a decay of each key channel.

Projections of low rank, the width of a head's values, compute the decays and
the output gate. The paper's models also have layers of softmax attention; the
bidirectional form is not in it. W_4 has no bias, as in the released models;
flash-linear-attention has one.

Equation: S'_t = diag(alpha_t) S_(t-1), S_t = S'_t + beta_t k_t^T (v_t - k_t
  S'_t), o_t = q_t S_t / sqrt(N), alpha_t = exp(-e^A softplus(W_2 W_1 x_t +
  dt)), q, k, v and beta as in DeltaNet; W_o (RMSNorm(o) sigmoid(W_4 W_3 x)) per
  head
Source: Kimi Team 2025, arXiv 2510.26692, equations 1 and 10 and section 4, and
  flash-linear-attention
"""

import flax.linen as nn

from lra.models import About
from lra.nn.delta_mixer import DeltaMixer

ABOUT = About('state space', 'O(L D^2 / H)', kernels=('xla',))


class Mixer(DeltaMixer):

  def log_decay(self, x_BxLxD):
    N, _ = self.heads(x_BxLxD.shape[-1])
    step_BxLxHxN = self._low_rank(x_BxLxD, N, 'decay')
    return self.decay_of(step_BxLxHxN, (self.num_heads, N), least=1.0)

  def gated(self, o_BxLxHxE, x_BxLxD):
    return o_BxLxHxE * nn.sigmoid(
        self._low_rank(x_BxLxD, o_BxLxHxE.shape[-1], 'gate'))

  def _low_rank(self, x_BxLxD, width, name):
    _, rank = self.heads(x_BxLxD.shape[-1])
    return self.project(
        self.dense(rank, f'{name}_down')(x_BxLxD), width, f'{name}_up')
