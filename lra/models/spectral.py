"""Linear attention whose kernel is learned through its spectral density.

Three densities give frequencies omega [H, F, Dh] with weights [H, F]: a
Gaussian mixture, FastFood, or a generator. Two kinds of random features
estimate the kernel from them without bias, with error ~ 1 / sqrt(M): cosines
and sines (RKS, a shift-invariant kernel), or exponentials (PRF, a positive
kernel). Each pair is a model. For cosines the frequency 0 adds 1 to the kernel,
so that no weight is negative. Samples are reparametrised, so gradients reach
the parameters of the density.

Source: Chowdhury et al. 2021, arXiv 2110.08323 ("On Learning the Transformer
  Kernel"), section 3, and its released code
"""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.core.errors import UserError
from lra.models import About
from lra.nn import draws, features, layers
from lra.schema import fields

ABOUT = About('kernel', 'O(L M D)',
              kernels=('xla', 'pallas_gpu', 'pallas_triton', 'pallas_tpu'))


class SpectralMixer(features.FeatureMixer):
  """A subclass defines `density` and may set `positive`."""
  num_features: int = fields.count(
      256, 'Number of features of a head, M.', low=2)
  redraw: bool = fields.argument(
      True, "Whether each training step draws new noise from the 'dropout' "
      'stream. Evaluation uses the initial noise.')
  positive = False  # whether features are exponentials, not cosines

  def density(self, num_frequencies: int, head_width: int, train: bool
              ) -> tuple[jax.Array, jax.Array]:
    """Returns frequencies [H, F, Dh], F <= num_frequencies, weights [H, F]."""
    raise NotImplementedError

  def feature_width(self, head_width):
    if self.positive:
      return self.drawn(self.num_features)
    return 2 * (self.drawn(self.num_features // 2 - 1) + 1)

  def drawn(self, most: int) -> int:
    """Returns F, the number of frequencies of `density`, at most `most`."""
    return most

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    scale = q_BxLxHxDh.shape[-1]**-0.25
    phi_q_BxLxHxM, phi_k_BxLxHxM = self._features(
        scale * q_BxLxHxDh, scale * k_BxLxHxDh, mask_BxL, train)
    return self.attend(phi_q_BxLxHxM, phi_k_BxLxHxM, v_BxLxHxDh, mask_BxL)

  def _features(self, q_BxLxHxDh, k_BxLxHxDh, mask_BxL, train):
    head_width = q_BxLxHxDh.shape[-1]
    if self.positive:
      omega, weight = self.density(self.num_features, head_width, train)
      return features.stable_pair(
          *(features.positive(x, omega, weight, 1.0)
            for x in (q_BxLxHxDh, k_BxLxHxDh)), mask_BxL, self.dtype)
    # Each frequency gives a cosine and a sine. One frequency is the constant 0.
    omega, weight = features.with_constant(
        *self.density(self.num_features // 2 - 1, head_width, train))
    return tuple(features.trigonometric(x, omega, weight)
                 for x in (q_BxLxHxDh, k_BxLxHxDh))

  def noise(self, name: str, draw: Callable, shape: tuple[int, ...],
            train: bool) -> jax.Array:
    return draws.kept(
        self, name, lambda key: draw(key, shape), self.redraw and train)


class GmmRks(SpectralMixer):
  """GMM-RKS: linear attention, its kernel a learned Gaussian mixture, cosines.

  The kernel is k(x, y) = sum_c pi_c exp(-|s_c (x - y)|^2 / 2)
  cos(mu_c . (x - y)), learned per head. The samples of a component share its
  weight pi_c. The released code has one Gaussian per head, with a full factor,
  and adds 0.13 to the kernel instead of 1.

  Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
    phi(x) = sqrt(pi_c / S) [cos(w . x), sin(w . x)], w ~ N(mu_c, diag(s_c^2)),
    x scaled by Dh^(-1/4)
  Source: Chowdhury et al. 2021, arXiv 2110.08323, section 3
  """
  num_components: int = fields.count(2, 'Number of Gaussians of each head, C.')

  def drawn(self, most):
    return most // self.num_components * self.num_components

  def density(self, num_frequencies, head_width, train):
    samples = num_frequencies // self.num_components
    if not samples:
      raise UserError(
          f'config.model.num_features={self.num_features} is too few for '
          f'{self.num_components} components: raise it.')
    shape_HxCxDh = (self.num_heads, self.num_components, head_width)
    mean_HxCxDh = self.param(
        'mean', nn.initializers.normal(head_width**-0.5), shape_HxCxDh)
    log_std_HxCxDh = self.param('log_std', nn.initializers.zeros, shape_HxCxDh)
    logit_HxC = self.param('logit', nn.initializers.zeros, shape_HxCxDh[:2])
    noise_HxCxSxDh = self.noise(
        'noise', jax.random.normal,
        (self.num_heads, self.num_components, samples, head_width), train)
    omega_HxCxSxDh = (mean_HxCxDh[:, :, None] +
                      jnp.exp(log_std_HxCxDh)[:, :, None] * noise_HxCxSxDh)
    weight_HxC = jax.nn.softmax(logit_HxC) / samples
    return (omega_HxCxSxDh.reshape(self.num_heads, -1, head_width),
            jnp.repeat(weight_HxC, samples, axis=1))


class GmmPrf(GmmRks):
  """GMM-PRF: linear attention, its kernel a learned Gaussian mixture, positive.

  The kernel k(x, y) = sum_c pi_c exp(mu_c . (x + y) + |s_c (x + y)|^2 / 2
  - |x|^2 - |y|^2) is positive for any number of features.

  Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
    phi(x) = sqrt(pi_c / S) exp(w . x - |x|^2), w ~ N(mu_c, diag(s_c^2)),
    x scaled by Dh^(-1/4)
  Source: Chowdhury et al. 2021, arXiv 2110.08323, section 3
  """
  positive = True


class GenerativeRks(SpectralMixer):
  """Generative-RKS: linear attention with a kernel from a generator, cosines.

  A network of three dense layers, shared by the heads, maps noise to
  frequencies; its sizes are those of the released code. Evaluation normalises
  by the statistics of its own samples and keeps no running averages.

  Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
    phi(x) = sqrt(1 / F) [cos(w_f . x), sin(w_f . x)], w = g(n), n ~ N(0, I),
    x scaled by Dh^(-1/4)
  Source: Chowdhury et al. 2021, arXiv 2110.08323, section 3
  """

  def density(self, num_frequencies, head_width, train):
    if num_frequencies < 2:
      raise UserError(
          f'config.model.num_features={self.num_features} is too few for a '
          'generator: raise it.')
    x = self.noise('noise', jax.random.normal,
                    (num_frequencies, max(head_width // 2, 1)), train)
    for i, width in enumerate((2 * head_width, 4 * head_width)):
      x = nn.Dense(width, kernel_init=layers.KERNEL_INIT,
                   name=f'generator_{i}')(x)
      x = nn.leaky_relu(nn.LayerNorm(
          epsilon=1e-5, reduction_axes=0, feature_axes=-1,
          use_fast_variance=False, name=f'norm_{i}')(x))
    x = nn.Dense(head_width, kernel_init=layers.KERNEL_INIT,
                 name='generator_out')(x)
    omega_HxFxDh = jnp.broadcast_to(
        jnp.tanh(x), (self.num_heads, num_frequencies, head_width))
    weight = 1 / num_frequencies
    return omega_HxFxDh, jnp.full(omega_HxFxDh.shape[:2], weight)


class GenerativePrf(GenerativeRks):
  """Generative-PRF: linear attention with a kernel from a generator, positive.

  Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
    phi(x) = sqrt(1 / M) exp(w . x - |x|^2), w = g(n), n ~ N(0, I),
    x scaled by Dh^(-1/4)
  Source: Chowdhury et al. 2021, arXiv 2110.08323, section 3
  """
  positive = True


class FastfoodRks(SpectralMixer):
  """FastFood-RKS: linear attention with a learned FastFood kernel, cosines.

  The frequencies are rows in stacked blocks of width W, the first power of two
  that is at least Dh. H is the Walsh-Hadamard matrix, P a random permutation;
  S, G, B are learned diagonals per head. They start as FastFood's estimate of
  the Gaussian kernel exp(-|x - y|^2 / 2): B random signs, G ~ N(0, 1),
  S = chi_W / |G|. The released code starts the diagonals near 0, has Dh
  frequencies, shared by the heads, and redraws P in each step.

  Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
    phi(x) = sqrt(1 / F) [cos(w_f . x), sin(w_f . x)],
    w = S H G P H B / sqrt(W), x scaled by Dh^(-1/4)
  Source: Chowdhury et al. 2021, arXiv 2110.08323, section 3; FastFood is Le,
    Sarlos & Smola 2013, arXiv 1408.3060
  """
  redraw: bool = False

  def density(self, num_frequencies, head_width, train):
    if num_frequencies < 1:
      raise UserError(
          f'config.model.num_features={self.num_features} is too few for a '
          'cosine, a sine and a constant: raise it.')
    width = 1 << max(head_width - 1, 0).bit_length()
    blocks = -(-num_frequencies // width)
    shape = (self.num_heads, blocks, width)

    def scales(key, shape):
      g_key, s_key = jax.random.split(key)
      g = jax.random.normal(g_key, shape)
      chi = jnp.linalg.norm(jax.random.normal(s_key, (*shape, width)), axis=-1)
      return jnp.stack([g, chi / jnp.linalg.norm(g, axis=-1, keepdims=True)])

    g_HxNxW, s_HxNxW = self.param('scales', scales, shape)
    b_HxNxW = self.param('signs', jax.random.rademacher, shape, jnp.float32)
    order_HxNxW = self.noise(
        'permutation', lambda key, shape: jnp.argsort(
            jax.random.uniform(key, shape), axis=-1), shape, train)
    m_HxNxWxW = walsh_hadamard(
        jnp.eye(width)[None, None] * b_HxNxW[..., None, :])
    m_HxNxWxW = jnp.take_along_axis(m_HxNxWxW, order_HxNxW[..., None], axis=-2)
    m_HxNxWxW = walsh_hadamard(g_HxNxW[..., None] * m_HxNxWxW)
    m_HxNxWxW = s_HxNxW[..., None] * m_HxNxWxW / math.sqrt(width)
    omega_HxFxDh = m_HxNxWxW.reshape(self.num_heads, -1, width)[
        :, :num_frequencies, :head_width]
    return omega_HxFxDh, jnp.full(omega_HxFxDh.shape[:2], 1 / num_frequencies)


class FastfoodPrf(FastfoodRks):
  """FastFood-PRF: linear attention with a learned FastFood kernel, positive.

  Equation: phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j)),
    phi(x) = sqrt(1 / M) exp(w_f . x - |x|^2), w = S H G P H B / sqrt(W),
    x scaled by Dh^(-1/4)
  Source: Chowdhury et al. 2021, arXiv 2110.08323, section 3; FastFood is Le,
    Sarlos & Smola 2013, arXiv 1408.3060
  """
  positive = True


def walsh_hadamard(x: jax.Array) -> jax.Array:
  """Computes H x over axis -2, whose width is a power of two."""
  *rest, width, columns = x.shape
  step = 1
  while step < width:
    pairs = x.reshape(*rest, width // (2 * step), 2, step, columns)
    even, odd = pairs[..., 0, :, :], pairs[..., 1, :, :]
    x = jnp.stack([even + odd, even - odd], -3)
    step *= 2
  return x.reshape(*rest, width, columns)
