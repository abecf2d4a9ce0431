"""GLA: linear attention with a gate of each token and key channel.

A projection of low rank computes the gates from the input; their 16th root
keeps them near 1. Keys are half as wide as the input. Each head is normalised
by its root mean square, with one scale for all heads, as in the authors' later
code; the paper has LayerNorm there, and a bias in the output gate.

`conv_width` puts a short convolution with SiLU after the projections of
queries, keys and values. A bidirectional layer runs the recurrence, and these
convolutions, once from each end with the same parameters; this is not in the
paper.

Equation: S_t = diag(alpha_t) S_(t-1) + k_t^T v_t, o_t = q_t S_t / sqrt(N),
  alpha_t = sigmoid(W_2 W_1 x_t + b)^(1/16); W_o (RMSNorm(o) SiLU(W_g x))
Source: Yang et al. 2024, arXiv 2312.06635, sections 4.1 and 4.4, and
  flash-linear-attention
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.nn.contraction import Dense
from lra.nn.gated_mixer import GatedMixer
from lra.nn.matrix_state import width_argument
from lra.nn.short_convolution import ShortConvolution, of_heads
from lra.schema import fields

FAMILY = 'state space'
COST = 'O(L D^2 / H)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla',)

ROOT = 16  # a gate is the 16th root of a sigmoid


class Mixer(GatedMixer):
  """Gated linear attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `GatedMixer`, and
    key_width: width of the queries and keys of all heads together; 0 means D /
      2.
    value_width: width of the values of all heads together; 0 means D.
    gate_rank: rank of the projection that computes the gates.
    conv_width: number of tokens that the short convolution reads; 0 means no
      convolution.
    dtype: dtype of the matmuls; gates are float32.
  """
  key_width: int = width_argument()
  value_width: int = width_argument()
  gate_rank: int = fields.argument(16, low=1, high=fields.MANY)
  conv_width: int = fields.argument(0, low=0, high=64)

  per_channel = True

  def widths(self, width: int) -> tuple[int, int]:
    return self.key_width or width // 2, self.value_width or width

  @nn.compact
  def __call__(self, x_BxLxD: jax.Array, mask_BxL: jax.Array, *,
               train: bool) -> jax.Array:
    """Returns [B, L, D] from x [B, L, D] and mask [B, L], True = token."""
    del train
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    N, E = self.heads(x_BxLxD.shape[-1])
    projected = {name: self.project(x_BxLxD, width, name) for name, width in (
        ('query', N), ('key', N), ('value', E))}
    low_BxLxR = Dense(self.gate_rank, dtype=self.dtype, use_bias=False,
                      name='forget_down')(x_BxLxD)
    forget_BxLxHxN = self.project(low_BxLxR, N, 'forget_up', use_bias=True)
    log_decay_BxLxHxN = jax.nn.log_sigmoid(
        forget_BxLxHxN.astype(jnp.float32)) / ROOT

    convolutions = {
        name: ShortConvolution(self.conv_width, dtype=self.dtype,
                               name=f'{name}_convolution')
        for name in projected if self.conv_width}

    def operands(reverse):
      qkv = (of_heads(convolutions[name], y, mask_BxL, reverse)
             if convolutions else y for name, y in projected.items())
      return *qkv, log_decay_BxLxHxN

    ways = self.attend(operands, mask_BxL, scale=N**-0.5)
    return self.merge(sum(ways), x_BxLxD)
