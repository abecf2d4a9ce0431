"""DeltaNet: linear attention that replaces what a key held before.

For each token, a step moves the value that the state holds for its key towards
the new value, by a share beta. The bidirectional form is not in the paper.

Equation: S_t = S_(t-1) + beta_t k_t^T (v_t - k_t S_(t-1)), o_t = q_t S_t /
  sqrt(N), q, k = SiLU(conv_4(W x)) / length, v = SiLU(conv_4(W x)),
  beta = sigmoid(w x) or 2 sigmoid(w x); W_o RMSNorm(o) per head
Source: Yang et al. 2024, arXiv 2406.06484, sections 2.2 and 3.3, and
  flash-linear-attention; Grazzi et al. 2024, arXiv 2411.12537
"""

from lra.models import About
from lra.nn.delta_mixer import DeltaMixer

ABOUT = About('state space', 'O(L D^2 / H)', kernels=('xla',))


class Mixer(DeltaMixer):

  def gated(self, o_BxLxHxE, x_BxLxD):
    return o_BxLxHxE
