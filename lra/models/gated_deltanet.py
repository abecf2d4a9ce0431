"""Gated DeltaNet: a delta rule whose state also decays, by a gate of each head.

By default keys are 3/4 D wide and values 3/2 D, as in the authors' code. The
bidirectional form is not in the paper.

Equation: S'_t = alpha_t S_(t-1), S_t = S'_t + beta_t k_t^T (v_t - k_t S'_t),
  o_t = q_t S_t / sqrt(N), alpha_t = exp(-e^A softplus(w x_t + dt)), q, k, v and
  beta as in DeltaNet; W_o (RMSNorm(o) SiLU(W_g x)) per head
Source: Yang et al. 2024, arXiv 2412.06464, equation 10 and section 3.4, and
  flash-linear-attention
"""

from lra.models import About
from lra.nn.delta_mixer import DeltaMixer

ABOUT = About('state space', 'O(L D^2 / H)', kernels=('xla',))


class Mixer(DeltaMixer):

  def widths(self, width):
    return self.key_width or 3 * width // 4, self.value_width or 3 * width // 2

  def log_decay(self, x_BxLxD):
    step_BxLxH = self.project(x_BxLxD, 1, 'decay')[..., 0]
    return self.decay_of(step_BxLxH, (self.num_heads,))
