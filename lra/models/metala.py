"""MetaLA: gated linear attention without keys, and with self-augmentation.

1 - alpha serves as the key, so there is no projection to keys. Each token sees
its own value once more, through a sigmoid, which starts at 1/2. Heads have a
LayerNorm without parameters. Queries and gates are half as wide as the input.

The authors' language models have a `conv_width` of 4; their settings for Long
Range Arena do not mention it. The paper has no bidirectional layer. Their layer
alone starts W_q and W_a 5.7 times smaller; their language models undo this by
drawing all weights again (deviation 0.02). Here all start alike, by Xavier.

Equation: S_t = diag(alpha_t) S_(t-1) + (1 - alpha_t)^T v_t,
  alpha_t = sigmoid(W_a x_t)^(1/16), o_t = q_t S_t / sqrt(N)
  + sigmoid((q_t . w (1 - alpha_t)) v_t); W_o (LayerNorm(o) SiLU(W_g x + b))
Source: Chou et al. 2024, arXiv 2411.10741, section 4, and the released code
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.models import About
from lra.nn import layers, norm
from lra.nn.convolution import ShortConvolution
from lra.nn.matrix_state import EPS, GatedMixer, width_argument
from lra.schema import fields

ABOUT = About('state space', 'O(L D^2 / H)', kernels=('xla',))
ROOT = 16  # a gate is the 16th root of a sigmoid


class Mixer(GatedMixer):
  key_width: int = width_argument(
      'queries and gates of all heads together; 0 means D / 2.')
  augmentation: bool = fields.argument(
      True, 'Whether each token sees its own value a second time.')
  conv_width: int = fields.argument(
      0, 'Number of tokens that the short convolution reads; 0 means no '
      'convolution.', low=0, high=64)

  per_channel = True
  scaled = True

  def widths(self, width):
    return self.key_width or width // 2, width

  def mix(self, x_BxLxD, mask_BxL):
    D = x_BxLxD.shape[-1]
    N, E = self.heads(D)
    query, forget = (self.projection(D, N, name) for name in (
        'query', 'forget'))
    value = self.projection(D, E, 'value')
    gate = self.projection(D, E, 'gate', use_bias=True)
    weight_HxN = self.param(
        'augmentation', nn.initializers.zeros,
        (self.num_heads, N)) if self.augmentation else None

    inputs = [x_BxLxD] * self.passes
    if self.conv_width:
      convolution = ShortConvolution(
          self.conv_width, dtype=self.dtype, name='convolution')
      inputs = [convolution(x_BxLxD, mask_BxL, reverse)
                for reverse in range(self.passes)]

    def operands(reverse):
      u_BxLxD = inputs[reverse]
      log_decay_BxLxHxN = jax.nn.log_sigmoid(
          forget(u_BxLxD).astype(jnp.float32)) / ROOT
      k_BxLxHxN = -jnp.expm1(log_decay_BxLxHxN)
      return (query(u_BxLxD), k_BxLxHxN.astype(self.dtype), value(u_BxLxD),
              log_decay_BxLxHxN)

    out_BxLxHxE = 0
    for reverse, o_BxLxHxE in enumerate(self.attend(operands, mask_BxL)):
      o_BxLxHxE = o_BxLxHxE.astype(jnp.float32)
      if weight_HxN is not None:
        o_BxLxHxE += _augmentation(*operands(reverse)[:3], weight_HxN)
      out_BxLxHxE += nn.silu(gate(inputs[reverse])) * norm.standardise(
          o_BxLxHxE, EPS).astype(self.dtype)
    return layers.merge_heads_and_project(
        out_BxLxHxE, D, self.dtype, use_bias=False)


def _augmentation(q_BxLxHxN, k_BxLxHxN, v_BxLxHxE, weight_HxN):
  """Returns sigmoid((q . w k) v), float32 [B, L, H, E]."""
  q, k, v = (y.astype(jnp.float32) for y in (q_BxLxHxN, k_BxLxHxN, v_BxLxHxE))
  own_BxLxHx1 = (q * k * weight_HxN[None, None]).sum(-1, keepdims=True)
  return nn.sigmoid(own_BxLxHx1 * v)
