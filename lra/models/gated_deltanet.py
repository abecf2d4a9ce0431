"""Gated DeltaNet: a delta rule whose state also decays, by a gate of each head.

The gate lets a token forget the whole state, the delta rule replaces the value
of one key. Keys are 3/4 D wide and values 3/2 D, as in the authors' code. A
bidirectional layer runs convolutions and recurrence once from each end, with
the same parameters; this is not in the paper.

Equation: S'_t = alpha_t S_(t-1), S_t = S'_t + beta_t k_t^T (v_t - k_t S'_t),
  o_t = q_t S_t / sqrt(N), alpha_t = exp(-e^A softplus(w x_t + dt)), q, k, v and
  beta as in DeltaNet; W_o (RMSNorm(o) SiLU(W_g x)) per head
Source: Yang et al. 2024, arXiv 2412.06464, equation 10 and section 3.4, and
  flash-linear-attention
"""

import flax.linen as nn

from lra.nn.delta_mixer import DeltaMixer

FAMILY = 'state space'
COST = 'O(L D^2 / H)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla',)


class Mixer(DeltaMixer):
  """Gated DeltaNet: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `DeltaMixer`; keys are 3/4 D and values 3/2 D wide by
    default.
  """

  def widths(self, width: int) -> tuple[int, int]:
    return self.key_width or 3 * width // 4, self.value_width or 3 * width // 2

  def log_decay(self, x_BxLxD):
    step_BxLxH = self.project(x_BxLxD, 1, 'decay')[..., 0]
    return self.decay_of(step_BxLxH, (self.num_heads,))

  def gated(self, o_BxLxHxE, x_BxLxD):
    return o_BxLxHxE * nn.silu(
        self.project(x_BxLxD, o_BxLxHxE.shape[-1], 'gate'))
