"""Random feature attention: cosines and sines of normalised queries and keys.

For q and k of length 1, exp(q . k) is a Gaussian kernel of q - k up to a
constant factor, which random Fourier features estimate without bias. A learned
`sigma` scales the frequencies. `gated` is the paper's causal variant: a gate
per head and position lets earlier tokens fade.

The estimate of a weight may be negative, and so may the sum that divides the
output. Its size is kept at or above a hundredth of its value for weights of 1;
its sign stays. The authors' code draws from a fixed pool of frequencies, has a
temperature, and multiplies features by 0.1. Its normalisers are at least 1
(0.001 in its causal form). It has neither the gates nor the arc-cosine
features.

Equation: phi(q_i) sum_j phi(k_j)^T v_j / phi(q_i) sum_j phi(k_j),
  phi(x) = [cos(w_m . x), sin(w_m . x)] / sqrt(M) or, arccos,
  max(w_m . x, 0) / sqrt(M), x of length 1, w = sigma N(0, I); gated:
  S_t = g_t S_(t-1) + (1 - g_t) phi(k_t)^T v_t, sums alike
Source: Peng et al. 2021, arXiv 2103.02143, sections 2 (both features),
  3.1 (attention) and 3.2 (gates); Cho and Saul 2009, the arc-cosine kernel
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import kernels
from lra.core.errors import UserError
from lra.models import About
from lra.nn import draws, features, layers
from lra.schema import fields

ABOUT = About('kernel', 'O(L M D)',
              kernels=('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu'))

FLOOR = 0.01  # smallest normaliser, relative to that of weights 1
EPS = 1e-6  # absolute minimum, for gates that are almost closed


class Mixer(features.FeatureMixer):
  """The collection 'constants' keeps the frequencies drawn at initialisation.
  """
  num_features: int = fields.count(
      64, 'Number of frequencies, M. A query or key has 2 M features with '
      'gaussian, and M with arccos.')
  feature_map: str = fields.argument(
      'gaussian', 'Kernel that the features estimate.',
      choices=('gaussian', 'arccos'))
  gated: bool = fields.argument(
      False, 'Whether to use the causal variant with gates; otherwise every '
      'token sees all tokens.')
  chunk_size: int = fields.count(64, 'Has no effect; old configs contain it.')
  redraw: bool = fields.argument(
      True, 'Whether each training step draws new frequencies from the '
      "'dropout' stream. Evaluation uses the initial frequencies.")

  @property
  def traits(self):
    return super().traits.but(causal=self.gated)

  def feature_width(self, head_width):
    return self.num_features * (1 + (self.feature_map == 'gaussian'))

  def kernel_for(self, length, width):
    if self.gated and self.kernel not in ('auto', 'xla'):
      raise UserError(f'config.model.kernel={self.kernel} has no gates: choose '
                      'auto or xla, or set config.model.gated=False.')
    if self.gated:
      return 'xla'
    return super().kernel_for(length, width)

  def project(self, x_BxLxD):
    gate_BxLxH = nn.Dense(self.num_heads, dtype=self.dtype, name='gate')(
        x_BxLxD) if self.gated else None
    return *super().project(x_BxLxD), gate_BxLxH

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, gate_BxLxH, mask_BxL, *,
          train):
    phi_q_BxLxHxF, phi_k_BxLxHxF = self._features(
        q_BxLxHxDh, k_BxLxHxDh, train)
    if self.gated:
      sums, norm, most = self._gated(
          phi_q_BxLxHxF, phi_k_BxLxHxF, v_BxLxHxDh, gate_BxLxH, mask_BxL)
    else:
      sums = features.linear_sums(
          phi_q_BxLxHxF, phi_k_BxLxHxF, v_BxLxHxDh, mask_BxL,
          kernel=self.kernel)
      norm = features.normaliser(phi_q_BxLxHxF, phi_k_BxLxHxF, mask_BxL)
      most = mask_BxL.sum(1, dtype=jnp.float32)[:, None, None, None]
    return (sums / _off_zero(norm, most)).astype(self.dtype)

  def _features(self, q_BxLxHxDh, k_BxLxHxDh, train):
    """Returns phi of queries and keys, each [B, L, H, 2 M] or [B, L, H, M]."""
    sigma_HxDh = self.param(
        'sigma', nn.initializers.ones, q_BxLxHxDh.shape[2:])
    omega_HxMxDh = sigma_HxDh[:, None] * self._frequencies(
        q_BxLxHxDh.shape[-1], train)
    weight_HxM = jnp.full(omega_HxMxDh.shape[:2], 1 / self.num_features)
    phi = (features.trigonometric if self.feature_map == 'gaussian' else
           features.arc_cosine)
    return tuple(phi(layers.unit(y), omega_HxMxDh, weight_HxM)
                 for y in (q_BxLxHxDh, k_BxLxHxDh))

  def _gated(self, phi_q_BxLxHxF, phi_k_BxLxHxF, v_BxLxHxDh, gate_BxLxH,
             mask_BxL):
    """Returns (sums, normalisers, normalisers if each weight were 1).

    One recurrence computes sums and normalisers: a 1 is appended to the values.
    """
    mask_BxLx1 = mask_BxL[..., None]
    gate_BxLxH = gate_BxLxH.astype(jnp.float32)
    # A padded position leaves the sums unchanged.
    keep_BxLxH = jnp.where(mask_BxLx1, jax.nn.log_sigmoid(gate_BxLxH), 0)
    take_BxLxH = jnp.where(mask_BxLx1, jax.nn.sigmoid(-gate_BxLxH), 0)
    v_BxLxHxDh = jnp.where(mask_BxLx1[..., None], v_BxLxHxDh, 0)
    v_BxLxHxE = jnp.concatenate(
        [v_BxLxHxDh, jnp.ones_like(v_BxLxHxDh[..., :1])], -1)
    sums_BxLxHxE = kernels.sharded(kernels.gated_linear_attention)(
        phi_q_BxLxHxF.astype(jnp.float32), phi_k_BxLxHxF.astype(jnp.float32),
        take_BxLxH[..., None] * v_BxLxHxE, log_decay=keep_BxLxH,
        kernel=self.kernel)
    most_BxLxH = -jnp.expm1(jnp.cumsum(keep_BxLxH, 1))
    return (sums_BxLxHxE[..., :-1], sums_BxLxHxE[..., -1:],
            most_BxLxH[..., None])

  def _frequencies(self, head_width, train):
    return draws.kept(self, 'omega', lambda key: features.gaussian_frequencies(
        key, self.num_heads, self.num_features, head_width),
                      self.redraw and train)


def _off_zero(norm, most):
  """Returns `norm`, but not closer to 0 than a share of `most`."""
  least = jnp.maximum(FLOOR * most, EPS)
  return jnp.where(norm < 0, -1, 1) * jnp.maximum(jnp.abs(norm), least)
