"""Performer: softmax attention estimated by positive orthogonal features.

FAVOR+: an unbiased estimate of the softmax kernel exp(q . k / sqrt(Dh)), so an
approximation of the Transformer whose error falls as 1 / sqrt(M). It is
stabilised by factors that cancel exactly; the released code adds an epsilon to
every feature instead, which biases the estimate.

Family: kernel
Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
  phi_m(x) = exp(w_m . x - |x|^2 / 2) / sqrt(M), x scaled by Dh^(-1/4)
Cost: O(L M D)
Source: Choromanski et al. 2021, arXiv 2009.14794, Lemma 1, sections 2.3, 2.4
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.nn import features, layers

KERNELS = ('xla', 'pallas_gpu', 'pallas_tpu')


class Mixer(nn.Module):
  """FAVOR+ attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  The frequencies drawn at initialisation are kept in collection 'constants'.

  Attributes:
    num_heads: H.
    qkv_width: H * Dh, the width of all heads together.
    num_features: M.
    orthogonal: whether frequencies are orthogonal or independent.
    redraw: whether each training step draws its own frequencies, from the
      'dropout' stream; evaluation uses those of initialisation.
    kernel: 'auto', 'xla', 'pallas_gpu' or 'pallas_tpu'.
    dtype: computing dtype; parameters are float32.

  Raises:
    UserError: the heads do not divide the width.
    NotImplementedError: the named kernel cannot run here.
  """
  num_heads: int = 8
  qkv_width: int = 512
  num_features: int = 256
  orthogonal: bool = True
  redraw: bool = False
  kernel: str = 'auto'
  dtype: jnp.dtype = jnp.float32

  def implementation(self, length: int, width: int) -> str:
    """The kernel that runs for x [B, length, width], for the record."""
    return layers.linear_kernel('linear', self, length)

  @nn.compact
  def __call__(self, x: jax.Array, mask: jax.Array, *,
               train: bool) -> jax.Array:
    q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh = layers.project_qkv(
        x, self.num_heads, self.qkv_width, self.dtype)
    omega_HxMxDh = self._frequencies(q_BxLxHxDh.shape[-1], train)
    weight_HxM = jnp.full(omega_HxMxDh.shape[:2], 1 / self.num_features)
    scale = q_BxLxHxDh.shape[-1]**-0.25
    phi_q_BxLxHxM, phi_k_BxLxHxM = features.stable_pair(
        *(features.positive(scale * y, omega_HxMxDh, weight_HxM, 0.5)
          for y in (q_BxLxHxDh, k_BxLxHxDh)), mask, self.dtype)
    o_BxLxHxDh = features.linear_attend(
        phi_q_BxLxHxM, phi_k_BxLxHxM, v_BxLxHxDh, mask, kernel=self.kernel)
    return layers.merge_heads_and_project(o_BxLxHxDh, x.shape[-1], self.dtype)

  def _frequencies(self, head_width, train):
    draw = (features.orthogonal_frequencies if self.orthogonal else
            features.gaussian_frequencies)
    shape = (self.num_heads, self.num_features, head_width)
    kept = self.variable('constants', 'omega',
                         lambda: draw(self.make_rng('params'), *shape))
    if self.redraw and train:
      return draw(self.make_rng('dropout'), *shape)
    return kept.value
