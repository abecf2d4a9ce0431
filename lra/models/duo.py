"""DuoAttention: each head mixes full attention with sinks and a window.

The paper trains only the gates, in a finished model with a penalty on their
sum, and then makes each head one kind or the other. Here gates are trained with
the model and stay mixed. They are sigmoids that start at 1/2; in the authors'
code they start at 1 and are clipped. The window looks both ways; in the
authors' code it looks back. The paper's models have `rotary`.

Equation: alpha_h softmax(Q K^T / sqrt(Dh)) V + (1 - alpha_h) softmax over
  { j : |i - j| <= w or j < s } of q_i k_j / sqrt(Dh), alpha_h = sigmoid(g_h)
Source: Xiao et al. 2024, arXiv 2410.10819, section 2.2
"""

import flax.linen as nn
import jax

from lra.models import About
from lra.nn import block_sparse
from lra.nn.mixer import SoftmaxMixer
from lra.nn.patterns import Pattern, sliding_window
from lra.nn.rotary import RotaryMixer
from lra.schema import fields

ABOUT = About('dense', 'O(L^2 D) time; O(L^2) memory dense, else O(L w)',
              time=2, kernels=('dense', 'chunked', 'splash', 'cudnn'))


class Mixer(RotaryMixer, SoftmaxMixer):
  radius: int = fields.count(
      256, 'Number of positions that streaming attention sees on either side, '
      'w.', low=0)
  num_sinks: int = fields.count(
      4, 'Number of first positions that streaming attention sees too, s.',
      low=0)

  def patterns(self, length: int) -> tuple[Pattern, ...]:
    return (sliding_window(
        min(self.radius, length), global_keys=self.num_sinks),)

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    full_BxLxHxDh = self.attend(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL)
    near_BxLxHxDh = block_sparse.attend(
        block_sparse.Heads(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh), mask_BxL,
        *self.patterns(mask_BxL.shape[1]))
    alpha_1x1xHx1 = jax.nn.sigmoid(self.param(
        'gate', nn.initializers.zeros, (self.num_heads, 1)))[None, None]
    exact = alpha_1x1xHx1.dtype
    o_BxLxHxDh = (alpha_1x1xHx1 * full_BxLxHxDh.astype(exact)
                  + (1 - alpha_1x1xHx1) * near_BxLxHxDh.astype(exact))
    return o_BxLxHxDh.astype(self.dtype)
