"""ALiBi: softmax attention that fades with distance, with a slope per head.

The paper is causal; here attention looks both ways and uses the absolute
distance, as the authors advise for encoders. The paper removes the positions of
the embedding: set `config.encoder.positions` to 'none'. For an H that is no
power of 2, the release takes some slopes from the next power.

Equation: softmax_j(q_i k_j / sqrt(Dh) - m_h |i - j|) v_j per head, m_h =
  2^(-8 h / H) for h = 1 ... H, then an output projection
Source: Press et al. 2021, arXiv 2108.12409, section 3
"""

import jax.numpy as jnp
import numpy as np

from lra.models import About
from lra.nn.mixer import BiasedMixer, MixerTraits

ABOUT = About('dense', 'O(L^2 D) time, O(L) memory', time=2)


class Mixer(BiasedMixer):

  traits = MixerTraits(ordered=True)

  def bias(self, length):
    slope_H = 2.0 ** (-8 * np.arange(1, self.num_heads + 1) / self.num_heads)
    far_S = np.abs(np.arange(1 - length, length))
    return jnp.asarray(-slope_H[:, None] * far_S, jnp.float32)
