"""Performer: softmax attention estimated by positive orthogonal features.

FAVOR+: phi(q) . phi(k) is an unbiased estimate of exp(q . k / sqrt(Dh)). Its
relative error is sqrt((exp(|q + k|^2) - 1) / M) for independent frequencies and
scaled q, k (Lemma 2). In a newly initialised model with Dh = 64 and M = 256 the
error of the heads' outputs is 1.7 times the outputs with one head, 2.5 times
with eight: there the Performer is a different mechanism.

Features are stabilised by factors that cancel exactly. The released codes
(google-research/performer and Long Range Arena) also add `eps` = 1e-6 to every
feature, which biases the estimate towards uniform weights. `feature_map` 'relu'
is phi_m(x) = (max(w_m . x, 0) + 1e-3) / sqrt(M).

Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
  phi_m(x) = exp(w_m . x - |x|^2 / 2) / sqrt(M), x scaled by Dh^(-1/4)
Source: Choromanski et al. 2021, arXiv 2009.14794, Lemma 1, sections 2.3, 2.4;
  section 4.3 for 'relu'
"""

import jax.numpy as jnp

from lra.core.errors import UserError
from lra.models import About
from lra.nn import draws, features
from lra.schema import fields

ABOUT = About('kernel', 'O(L M D)',
              kernels=('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu'))
RELU_EPS = 1e-3


class Mixer(features.FeatureMixer):
  """The collection 'constants' keeps the frequencies drawn at initialisation.
  """
  num_features: int = fields.count(256, 'Number of features of a head, M.')
  orthogonal: bool = fields.argument(
      True, 'Whether the frequencies are orthogonal instead of independent.')
  feature_map: str = fields.argument(
      'exp', 'Function that makes the features: `exp` estimates softmax '
      'attention, `relu` does not.', choices=('exp', 'relu'))
  redraw: bool = fields.argument(
      True, 'Whether each training step draws new frequencies from the '
      "'dropout' stream. Evaluation uses the initial frequencies.")
  eps: float = fields.argument(
      0.0, 'Added to every exponential feature, the largest of which is about '
      '1; 0 for none.', low=0, high=fields.LARGEST)

  def feature_width(self, head_width):
    return self.num_features

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    omega_HxMxDh = self._frequencies(q_BxLxHxDh.shape[-1], train)
    scale = q_BxLxHxDh.shape[-1]**-0.25
    weight_HxM = jnp.full(omega_HxMxDh.shape[:2], 1 / self.num_features)
    both = scale * q_BxLxHxDh, scale * k_BxLxHxDh
    if self.feature_map == 'exp' and not self.eps:
      phi = features.stable_pair(
          *(features.positive(y, omega_HxMxDh, weight_HxM, 0.5) for y in both),
          mask_BxL, self.dtype)
      return self.attend(*phi, v_BxLxHxDh, mask_BxL)
    if self.feature_map == 'exp':
      phi = features.pair_with_eps(*both, omega_HxMxDh, mask_BxL, self.eps)
    elif self.eps:
      raise UserError(f'config.model.eps={self.eps} belongs to exponential '
                      'features: set it to 0 or config.model.feature_map=exp.')
    else:
      least = RELU_EPS / self.num_features**0.5
      phi = (features.arc_cosine(y, omega_HxMxDh, weight_HxM) + least
             for y in both)
    return self.attend(*phi, v_BxLxHxDh, mask_BxL, features.TINY)

  def _frequencies(self, head_width, train):
    draw = (features.orthogonal_frequencies if self.orthogonal else
            features.gaussian_frequencies)
    return draws.kept(self, 'omega', lambda key: draw(
        key, self.num_heads, self.num_features, head_width),
                      self.redraw and train)
