"""Learned spectral densities, and the attention that uses them.

A density gives frequencies omega [H, F, Dh] with weights [H, F]. Its noise is
drawn once at initialisation (collection 'constants') or again in each training
step. Samples are reparametrised, so gradients reach the parameters of the
density. Call the functions inside a compact module: they create its parameters.

Source: Chowdhury et al. 2021, arXiv 2110.08323 ("On Learning the Transformer
Kernel"), section 3, and its released code.
"""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.config import fields
from lra.errors import UserError
from lra.nn import draws, features, layers
from lra.nn.mixer import HeadMixer


class SpectralMixer(HeadMixer):
  """Linear attention with a learned kernel: x [B, L, D] -> [B, L, D].

  A subclass defines `density` and may set `positive`; mask is [B, L] bool.

  Attributes: those of `HeadMixer`, and
    num_features: M, number of features of a head.
    redraw: whether each training step draws new noise from the 'dropout'
      stream; evaluation uses the noise of initialisation.
    kernel: 'auto' or one of `kernels.OPS['linear']`.

  Raises:
    UserError: the heads do not divide the width, or too few features.
  """
  num_features: int = fields.argument(256, low=2, high=fields.MANY)
  redraw: bool = False
  kernel: str = 'auto'

  splits_sequences = True

  op = 'linear'
  positive = False  # True: exponential features; False: cosines and sines

  def density(self, num_frequencies: int, head_width: int, train: bool
              ) -> tuple[jax.Array, jax.Array]:
    """Returns frequencies [H, F, Dh], F <= num_frequencies, weights [H, F]."""
    raise NotImplementedError

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    """See `HeadMixer.mix`."""
    scale = q_BxLxHxDh.shape[-1]**-0.25
    phi_q_BxLxHxM, phi_k_BxLxHxM = self._features(
        scale * q_BxLxHxDh, scale * k_BxLxHxDh, mask_BxL, train)
    return features.linear_attend(
        phi_q_BxLxHxM, phi_k_BxLxHxM, v_BxLxHxDh, mask_BxL, kernel=self.kernel)

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
    """Returns `draw(key, shape)`, drawn at initialisation or in each step."""
    kept = self.variable('constants', name,
                         lambda: draw(self.make_rng('params'), shape))
    if self.redraw and train:
      return draw(draws.step_key(self), shape)
    return kept.value


def gaussian_mixture(mixer: SpectralMixer, num_components: int,
                     num_frequencies: int, head_width: int, train: bool
                     ) -> tuple[jax.Array, jax.Array]:
  """Samples p = sum_c pi_c N(mu_c, diag(sigma_c^2)) per head.

  Every component has the same number of samples mu_c + sigma_c n, n ~ N(0, I).
  They share its weight pi_c, so the estimate is unbiased for any pi.

  Raises:
    UserError: fewer frequencies than components.
  """
  samples = num_frequencies // num_components
  if not samples:
    raise UserError(
        f'config.model.num_features={mixer.num_features} is too few for '
        f'{num_components} components: raise it.')
  shape_HxCxDh = (mixer.num_heads, num_components, head_width)
  mean_HxCxDh = mixer.param(
      'mean', nn.initializers.normal(head_width**-0.5), shape_HxCxDh)
  log_std_HxCxDh = mixer.param('log_std', nn.initializers.zeros, shape_HxCxDh)
  logit_HxC = mixer.param('logit', nn.initializers.zeros, shape_HxCxDh[:2])
  noise_HxCxSxDh = mixer.noise(
      'noise', jax.random.normal,
      (mixer.num_heads, num_components, samples, head_width), train)
  omega_HxCxSxDh = (mean_HxCxDh[:, :, None] +
                    jnp.exp(log_std_HxCxDh)[:, :, None] * noise_HxCxSxDh)
  weight_HxC = jax.nn.softmax(logit_HxC) / samples
  return (omega_HxCxSxDh.reshape(mixer.num_heads, -1, head_width),
          jnp.repeat(weight_HxC, samples, axis=1))


def generated(mixer: SpectralMixer, num_frequencies: int, head_width: int,
              train: bool) -> tuple[jax.Array, jax.Array]:
  """Computes omega = g(n), n ~ N(0, I): a network maps noise to frequencies.

  The network has three dense layers, shared by the heads. Between them are
  batch normalisation over the F samples and leaky ReLU, at the end is tanh. The
  noise has Dh / 2 entries, the hidden layers have 2 Dh and 4 Dh units, as in
  the released code. Training and evaluation see the same noise unless `redraw`
  is set. Evaluation therefore normalises by the statistics of its own samples
  and keeps no running averages.

  Raises:
    UserError: fewer than two frequencies.
  """
  if num_frequencies < 2:
    raise UserError(
        f'config.model.num_features={mixer.num_features} is too few for a '
        'generator: raise it.')
  x = mixer.noise('noise', jax.random.normal,
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
      jnp.tanh(x), (mixer.num_heads, num_frequencies, head_width))
  weight = 1 / num_frequencies
  return omega_HxFxDh, jnp.full(omega_HxFxDh.shape[:2], weight)


def fastfood(mixer: SpectralMixer, num_frequencies: int, head_width: int,
             train: bool) -> tuple[jax.Array, jax.Array]:
  """Computes omega = rows of S H G P H B / sqrt(W), stacked blocks of width W.

  H is the Walsh-Hadamard matrix of the first power of two W >= Dh, P a random
  permutation; S, G, B are learned diagonals per head. They start as in FastFood
  (Le, Sarlos & Smola 2013): B random signs, G ~ N(0, 1), S = chi_W / |G|. Each
  row thus starts as N(0, I); the released code starts near 0. The transform is
  applied to the identity once per step and not to every token, because a matmul
  of width Dh is faster there.

  Raises:
    UserError: no frequencies.
  """
  if num_frequencies < 1:
    raise UserError(
        f'config.model.num_features={mixer.num_features} is too few for a '
        'cosine, a sine and a constant: raise it.')
  width = 1 << max(head_width - 1, 0).bit_length()
  blocks = -(-num_frequencies // width)
  shape = (mixer.num_heads, blocks, width)

  def scales(key, shape):
    g_key, s_key = jax.random.split(key)
    g = jax.random.normal(g_key, shape)
    chi = jnp.linalg.norm(jax.random.normal(s_key, (*shape, width)), axis=-1)
    return jnp.stack([g, chi / jnp.linalg.norm(g, axis=-1, keepdims=True)])

  g_HxNxW, s_HxNxW = mixer.param('scales', scales, shape)
  b_HxNxW = mixer.param('signs', jax.random.rademacher, shape, jnp.float32)
  order_HxNxW = mixer.noise(
      'permutation', lambda key, shape: jnp.argsort(
          jax.random.uniform(key, shape), axis=-1), shape, train)
  m_HxNxWxW = walsh_hadamard(
      jnp.eye(width)[None, None] * b_HxNxW[..., None, :])
  m_HxNxWxW = jnp.take_along_axis(m_HxNxWxW, order_HxNxW[..., None], axis=-2)
  m_HxNxWxW = walsh_hadamard(g_HxNxW[..., None] * m_HxNxWxW)
  m_HxNxWxW = s_HxNxW[..., None] * m_HxNxWxW / math.sqrt(width)
  omega_HxFxDh = m_HxNxWxW.reshape(mixer.num_heads, -1, width)[
      :, :num_frequencies, :head_width]
  return omega_HxFxDh, jnp.full(omega_HxFxDh.shape[:2], 1 / num_frequencies)


def walsh_hadamard(x: jax.Array) -> jax.Array:
  """Computes H x over axis -2, unnormalised; W a power of two.

  Takes W log W operations.
  """
  *rest, width, columns = x.shape
  step = 1
  while step < width:
    pairs = x.reshape(*rest, width // (2 * step), 2, step, columns)
    even, odd = pairs[..., 0, :, :], pairs[..., 1, :, :]
    x = jnp.stack([even + odd, even - odd], -3)
    step *= 2
  return x.reshape(*rest, width, columns)
