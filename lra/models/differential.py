"""Differential attention: a second softmax is subtracted from the first.

The H heads here are H / 2 of the paper's, with values twice as wide, so that
all sizes equal the Transformer's. The paper is causal; here both softmaxes see
all tokens. The released code has `rotary`.

Equation: (softmax(Q1 K1^T / sqrt(Dh)) - lambda softmax(Q2 K2^T / sqrt(Dh))) V,
  lambda = exp(a1 . b1) - exp(a2 . b2) + l, l = 0.8 - 0.6 exp(-0.3 (layer - 1))
  with layers from 1; RMS norm of each head, times 1 - l; output projection
Source: Ye et al. 2024, arXiv 2410.05258, eq. 1-3 and section 2.1
"""

import math

import flax.linen as nn
import jax.numpy as jnp

from lra.core.errors import UserError
from lra.models import About
from lra.nn import norm
from lra.nn.mixer import SoftmaxMixer
from lra.nn.rotary import RotaryMixer

ABOUT = About('dense', 'O(L^2 D) time; O(L^2) memory dense, else O(L)', time=2,
              kernels=('dense', 'chunked', 'splash', 'cudnn'))


class Mixer(RotaryMixer, SoftmaxMixer):
  layer: int = 0

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    if self.num_heads % 2:
      raise UserError(
          f'config.model.num_heads={self.num_heads} cannot be paired: '
          'differential attention needs an even number.')
    B, L, H, Dh = q_BxLxHxDh.shape
    pairs = (B, L, H // 2, 2 * Dh)
    v_BxLxPxE = v_BxLxHxDh.reshape(pairs)
    first, second = (
        self.attend(q_BxLxHxDh[:, :, i::2], k_BxLxHxDh[:, :, i::2], v_BxLxPxE,
                    mask_BxL) for i in range(2))
    start = 0.8 - 0.6 * math.exp(-0.3 * self.layer)
    o_BxLxPxE = first - (self._lambda(Dh) + start).astype(self.dtype) * second
    o_BxLxPxE = norm.RMSNorm(epsilon=1e-5, dtype=self.dtype, name='norm')(
        o_BxLxPxE)
    return (o_BxLxPxE * (1 - start)).reshape(B, L, H, Dh)

  def _lambda(self, width):
    """Returns exp(a1 . b1) - exp(a2 . b2), float32 []."""
    a, b = (self.param(name, nn.initializers.normal(0.1), (2, width))
            for name in ('lambda_query', 'lambda_key'))
    terms = jnp.exp(jnp.sum(a * b, axis=1))
    return terms[0] - terms[1]
