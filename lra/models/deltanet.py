"""DeltaNet: linear attention that replaces what a key held before.

For each token, a step reads the value that the state holds for its key, and
moves it towards the new value by a share beta. `negative_eigenvalues` doubles
beta: a step can then reverse a direction, which state tracking such as parity
needs. A bidirectional layer runs convolutions and recurrence once from each
end, with the same parameters; this is not in the paper.

Equation: S_t = S_(t-1) + beta_t k_t^T (v_t - k_t S_(t-1)), o_t = q_t S_t /
  sqrt(N), q, k = SiLU(conv_4(W x)) / length, v = SiLU(conv_4(W x)),
  beta = sigmoid(w x) or 2 sigmoid(w x); W_o RMSNorm(o) per head
Source: Yang et al. 2024, arXiv 2406.06484, sections 2.2 and 3.3, and
  flash-linear-attention; Grazzi et al. 2024, arXiv 2411.12537
"""

from lra.nn.delta_mixer import DeltaMixer

FAMILY = 'state space'
COST = 'O(L D^2 / H)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla',)


class Mixer(DeltaMixer):
  """DeltaNet: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `DeltaMixer`; keys and values are D wide by default.
  """
