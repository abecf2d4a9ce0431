"""Random feature attention: cosines and sines of normalised queries and keys.

With q and k of length 1, exp(q . k) is a Gaussian kernel of q - k but for a
constant, which random Fourier features estimate without bias. A learned width
of each feature (`sigma` in the parameters) stretches the frequencies, as in the
paper. `gated` is the paper's causal variant for recency: a gate per head and
position, read from the input, lets earlier tokens fade.

Frequencies are drawn anew for each training step, or kept (`redraw`). An
estimated weight may be negative, so a sum of few may come near 0, unlike the
softmax's; 1e-6 is added to it.

Equation: phi(q_i) sum_j phi(k_j)^T v_j / phi(q_i) sum_j phi(k_j),
  phi(x) = [cos(w_m . x), sin(w_m . x)] / sqrt(M), x of length 1, w = sigma
  N(0, I); gated: S_t = g_t S_(t-1) + (1 - g_t) phi(k_t)^T v_t, sums likewise
Source: Peng et al. 2021, arXiv 2103.02143, sections 3.1 (features,
  attention) and 3.2 (gates)
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra import fields
from lra.errors import UserError
from lra.nn import features, layers
from lra.nn.gated_sums import gated_sums
from lra.nn.mixer import HeadMixer

FAMILY = 'kernel'
COST = 'O(L M D)'
GROWTH = {'time': 1, 'memory': 1}
KERNELS = ('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu')

EPS = 1e-6  # added to normalisers


class Mixer(HeadMixer):
  """Random feature attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  The frequencies drawn at initialisation are kept in collection 'constants'.

  Attributes: those of `HeadMixer`, and
    num_features: M, frequencies; a query or key has 2 M features.
    gated: the causal variant with gates; without, every token sees all.
    chunk_size: positions that the gated variant computes at once.
    redraw: whether each training step draws its own frequencies, from the
      'dropout' stream; evaluation uses those of initialisation.
    kernel: 'auto' or one of `KERNELS`; gated, 'auto' or 'xla'.

  Raises:
    UserError: the heads do not divide the width, or the kernel is unknown or
      cannot run here.
  """
  num_features: int = fields.argument(64, low=1, high=fields.MANY)
  gated: bool = False
  chunk_size: int = fields.argument(64, low=1, high=fields.MANY)
  redraw: bool = False
  kernel: str = 'auto'

  op = 'linear'

  @property
  def causal(self) -> bool:
    """Whether a position sees nothing that comes after it."""
    return self.gated

  def kernel_for(self, length, width, **needs):
    """See `HeadMixer.kernel_for`."""
    if self.gated and self.kernel not in ('auto', 'xla'):
      raise UserError(f'config.model.kernel={self.kernel} has no gates: choose '
                      'auto or xla, or set config.model.gated=False.')
    if self.gated:
      return 'xla'
    return super().kernel_for(length, width, **needs)

  def project(self, x_BxLxD):
    """Queries, keys, values and logits of gates, [B, L, H], or None."""
    gate_BxLxH = nn.Dense(self.num_heads, dtype=self.dtype, name='gate')(
        x_BxLxD) if self.gated else None
    return *super().project(x_BxLxD), gate_BxLxH

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, gate_BxLxH, mask_BxL, *,
          train):
    """See `HeadMixer.mix`."""
    sigma_HxDh = self.param(
        'sigma', nn.initializers.ones, q_BxLxHxDh.shape[2:])
    omega_HxMxDh = sigma_HxDh[:, None] * self._frequencies(
        q_BxLxHxDh.shape[-1], train)
    weight_HxM = jnp.full(omega_HxMxDh.shape[:2], 1 / self.num_features)
    phi_q_BxLxHxF, phi_k_BxLxHxF = (
        features.trigonometric(layers.unit(y), omega_HxMxDh, weight_HxM)
        for y in (q_BxLxHxDh, k_BxLxHxDh))
    if not self.gated:
      return features.linear_attend(
          phi_q_BxLxHxF, phi_k_BxLxHxF, v_BxLxHxDh, mask_BxL,
          kernel=self.kernel, eps=EPS)
    return self._gated(
        phi_q_BxLxHxF, phi_k_BxLxHxF, v_BxLxHxDh, gate_BxLxH, mask_BxL)

  def _gated(self, phi_q_BxLxHxF, phi_k_BxLxHxF, v_BxLxHxDh, gate_BxLxH,
             mask_BxL):
    """Numerator and normaliser are one sum: the values have a 1 appended."""
    mask_BxLx1 = mask_BxL[..., None]
    gate_BxLxH = gate_BxLxH.astype(jnp.float32)
    # A padded position leaves the sums as they are.
    keep_BxLxH = jnp.where(mask_BxLx1, jax.nn.log_sigmoid(gate_BxLxH), 0)
    take_BxLxH = jnp.where(mask_BxLx1, jax.nn.sigmoid(-gate_BxLxH), 0)
    v_BxLxHxDh = jnp.where(mask_BxLx1[..., None], v_BxLxHxDh, 0)
    v_BxLxHxE = jnp.concatenate(
        [v_BxLxHxDh, jnp.ones_like(v_BxLxHxDh[..., :1])], -1)
    sums_BxLxHxE = gated_sums(
        phi_q_BxLxHxF, phi_k_BxLxHxF, take_BxLxH[..., None] * v_BxLxHxE,
        keep_BxLxH, self.chunk_size)
    return (sums_BxLxHxE[..., :-1] / (sums_BxLxHxE[..., -1:] + EPS)).astype(
        self.dtype)

  def _frequencies(self, head_width, train):
    shape = (self.num_heads, self.num_features, head_width)
    kept = self.variable(
        'constants', 'omega',
        lambda: features.gaussian_frequencies(self.make_rng('params'), *shape))
    if self.redraw and train:
      return features.gaussian_frequencies(self.make_rng('dropout'), *shape)
    return kept.value
