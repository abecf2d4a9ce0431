"""GLA: linear attention with a gate of each token and key channel.

A projection of low rank computes the gates; their 16th root keeps them near 1.
All heads share one scale of their RMS norms, as in the authors' later code; the
paper has LayerNorm there, and a bias in the output gate. The bidirectional form
is not in the paper. As in the authors' models, b starts at 0; in their layer
alone it is uniform.

Equation: S_t = diag(alpha_t) S_(t-1) + k_t^T v_t, o_t = q_t S_t / sqrt(N),
  alpha_t = sigmoid(W_2 W_1 x_t + b)^(1/16); W_o (RMSNorm(o) SiLU(W_g x))
Source: Yang et al. 2024, arXiv 2312.06635, sections 4.1 and 4.4, and
  flash-linear-attention
"""

import jax
import jax.numpy as jnp

from lra.models import About
from lra.nn.matrix_state import GatedMixer, width_argument
from lra.schema import fields

ABOUT = About('state space', 'O(L D^2 / H)', kernels=('xla',))
ROOT = 16  # a gate is the 16th root of a sigmoid


class Mixer(GatedMixer):
  key_width: int = width_argument(
      'queries and keys of all heads together; 0 means D / 2.')
  value_width: int = width_argument(
      'values of all heads together; 0 means D.')
  gate_rank: int = fields.count(
      16, 'Rank of the projection that computes the gates.')
  conv_width: int = fields.argument(
      0, 'Number of tokens that the short convolution reads; 0 means no '
      'convolution.', low=0, high=64)

  per_channel = True
  scaled = True

  def widths(self, width):
    return self.key_width or width // 2, self.value_width or width

  def operands(self, x_BxLxD, mask_BxL):
    N, E = self.heads(x_BxLxD.shape[-1])
    projected = {name: self.project(x_BxLxD, width, name) for name, width in (
        ('query', N), ('key', N), ('value', E))}
    low_BxLxR = self.dense(self.gate_rank, 'forget_down')(x_BxLxD)
    forget_BxLxHxN = self.project(low_BxLxR, N, 'forget_up', use_bias=True)
    log_decay_BxLxHxN = jax.nn.log_sigmoid(
        forget_BxLxHxN.astype(jnp.float32)) / ROOT
    convolved = self.convolved(projected, mask_BxL)
    return lambda reverse: (*convolved(reverse), log_decay_BxLxHxN)
