"""Random features of kernels, and linear attention with them.

A feature map phi gives attention weights as dot products, weight(q, k) =
phi(q) . phi(k) / sum_j phi(q) . phi(k_j), so attention costs O(L). The
frequencies omega of a kernel, [F, Dh] per head, are samples of its spectral
density. Each has a weight w; in a plain average, w = 1 / F.

Shapes: B batch, L length, H heads, Dh head width, F frequencies, M features.
"""

import functools
import math

import jax
import jax.numpy as jnp

from lra import kernels
from lra.nn import contraction
from lra.nn.mixer import HeadMixer, MixerTraits

TINY = 1e-30  # avoids 0 / 0 and changes no quotient of normal numbers


class FeatureMixer(HeadMixer):
  """Linear attention with features of queries and keys."""
  kernel: str = 'auto'

  traits = MixerTraits(splits_sequences=True)
  op = 'linear'
  # Whether the output is divided by phi(q) . sum_j phi(k_j).
  normalised = True

  def feature_width(self, head_width: int) -> int:
    """Returns M, the number of features of a key."""
    raise NotImplementedError

  def state_size(self, width: int) -> int:
    """Returns how many numbers phi(K)^T V and sum phi(K) hold in all heads."""
    return (self.num_heads * self.feature_width(self.head_width)
            * (self.head_width + self.normalised))

  def attend(self, phi_q_BxLxHxM, phi_k_BxLxHxM, v_BxLxHxDh, mask_BxL,
             eps: float = 1e-6) -> jax.Array:
    return linear_attend(phi_q_BxLxHxM, phi_k_BxLxHxM, v_BxLxHxDh, mask_BxL,
                         kernel=self.kernel, eps=eps)


def orthogonal_frequencies(key: jax.Array, num_heads: int, num_features: int,
                           width: int) -> jax.Array:
  """Draws rows orthogonal within blocks of `width`, [H, F, Dh].

  Each row is N(0, I): a Haar direction times an independent chi-distributed
  length (Choromanski et al. 2021, arXiv 2009.14794, section 2.4).
  """
  key, length_key = jax.random.split(key)
  blocks = -(-num_features // width)
  rows = _haar(jax.random.normal(key, (num_heads, blocks, width, width)))
  rows = rows.reshape(num_heads, -1, width)[:, :num_features]
  length = jnp.linalg.norm(
      jax.random.normal(length_key, rows.shape), axis=-1, keepdims=True)
  return rows * length


def _haar(square_HxNxDhxDh):
  """Orthonormalises rows of N(0, I) by Gram-Schmidt: a uniform distribution."""
  # `jnp.linalg.qr` could deadlock on a CPU if a program has two such layers: it
  # runs its batches on the thread pool that waits for them.
  def add(i, basis_HxNxDhxDh):
    row_HxNxDh = square_HxNxDhxDh[..., i, :]
    for _ in range(2):  # the second time removes rounding errors
      inside_HxNxDh = jnp.einsum(
          'hnij,hnj->hni', basis_HxNxDhxDh, row_HxNxDh, precision='highest')
      row_HxNxDh = row_HxNxDh - jnp.einsum(
          'hnij,hni->hnj', basis_HxNxDhxDh, inside_HxNxDh, precision='highest')
    row_HxNxDh /= jnp.linalg.norm(row_HxNxDh, axis=-1, keepdims=True)
    return basis_HxNxDhxDh.at[..., i, :].set(row_HxNxDh)

  return jax.lax.fori_loop(0, square_HxNxDhxDh.shape[-1], add,
                           jnp.zeros_like(square_HxNxDhxDh))


def gaussian_frequencies(key: jax.Array, num_heads: int, num_features: int,
                         width: int) -> jax.Array:
  """Draws independent rows of N(0, I): [H, F, Dh]."""
  return jax.random.normal(key, (num_heads, num_features, width))


def trigonometric(x_BxLxHxDh, omega_HxFxDh,
                  weight_HxF) -> jax.Array:
  """Returns phi, [B, L, H, 2 F]; angles are float32.

  phi(x) . phi(y) = sum_f w_f cos(omega_f . (x - y)): random kitchen sinks
  (Rahimi & Recht 2008).
  """
  amplitude_1x1xHxF = jnp.sqrt(weight_HxF)[None, None]
  parts = _cos_and_sin(_project(x_BxLxHxDh, omega_HxFxDh))
  return jnp.concatenate([amplitude_1x1xHxF * part for part in parts],
                         -1).astype(x_BxLxHxDh.dtype)


def arc_cosine(x_BxLxHxDh, omega_HxFxDh,
               weight_HxF) -> jax.Array:
  """Returns phi_f(x) = sqrt(w_f) max(omega_f . x, 0), [B, L, H, F].

  For omega of N(0, I) and w = 1 / F the expectation of phi(x) . phi(y) is half
  the arc-cosine kernel of order 1 (Cho and Saul 2009, section 2.1):
  |x| |y| (sin t + (pi - t) cos t) / (2 pi), with t the angle between x and y.
  """
  return (jnp.sqrt(weight_HxF)[None, None] * jax.nn.relu(
      _project(x_BxLxHxDh, omega_HxFxDh))).astype(x_BxLxHxDh.dtype)


def with_constant(omega_HxFxDh, weight_HxF
                  ) -> tuple[jax.Array, jax.Array]:
  """Adds 1 to the kernel by appending the frequency 0.

  If the weights of the cosines sum to 1, no attention weight is negative.
  """
  return (jnp.pad(omega_HxFxDh, [(0, 0), (0, 1), (0, 0)]),
          jnp.pad(weight_HxF, [(0, 0), (0, 1)], constant_values=1))


def positive(x_BxLxHxDh, omega_HxFxDh,
             weight_HxF, norm_factor: float) -> jax.Array:
  """Returns the logarithms of positive features, float32 [B, L, H, F].

  log phi_f(x) = omega_f . x - norm_factor |x|^2 + log(w_f) / 2. For omega of
  N(0, I) the expectation of phi(x) . phi(y) is exp(x . y) with a norm_factor
  of 1/2 (Choromanski et al. 2021, Lemma 1) and exp(-|x - y|^2 / 2) with 1.
  """
  square_BxLxHx1 = jnp.square(x_BxLxHxDh.astype(jnp.float32)).sum(
      -1, keepdims=True)
  return (_project(x_BxLxHxDh, omega_HxFxDh) - norm_factor * square_BxLxHx1
          + 0.5 * jnp.log(weight_HxF)[None, None])


def stable_pair(log_q_BxLxHxF, log_k_BxLxHxF,
                mask_BxL, dtype: jnp.dtype
                ) -> tuple[jax.Array, jax.Array]:
  """Returns phi(q) and phi(k), [B, L, H, F] in `dtype`, without overflow.

  The largest key of each feature is scaled to 1 at the expense of the queries,
  and then the largest feature of each query, which does not change attention.
  No feature exceeds 1 and every normaliser is at least 1.
  """
  mask_BxLx1x1 = mask_BxL[:, :, None, None]
  log_k_BxLxHxF = jnp.where(mask_BxLx1x1, log_k_BxLxHxF, -1e30)
  most_Bx1xHxF = jax.lax.stop_gradient(log_k_BxLxHxF.max(1, keepdims=True))
  # A sequence without tokens has no largest key.
  most_Bx1xHxF = jnp.maximum(most_Bx1xHxF, -1e20)
  log_q_BxLxHxF = log_q_BxLxHxF + most_Bx1xHxF
  log_q_BxLxHxF -= jax.lax.stop_gradient(
      log_q_BxLxHxF.max(-1, keepdims=True))
  phi_q_BxLxHxF = jnp.exp(log_q_BxLxHxF).astype(dtype)
  phi_k_BxLxHxF = jnp.exp(log_k_BxLxHxF - most_Bx1xHxF).astype(dtype)
  return phi_q_BxLxHxF, phi_k_BxLxHxF


def pair_with_eps(q_BxLxHxDh, k_BxLxHxDh,
                  omega_HxFxDh, mask_BxL,
                  eps: float) -> tuple[jax.Array, jax.Array]:
  """Returns phi(q), phi(k) [B, L, H, F] with an epsilon, as Performer's code.

  phi_f(x) = exp(omega_f . x - |x|^2 / 2 - top) + eps. For a query, top is its
  largest omega_f . x. All keys of a head share one top: the largest omega_f . k
  over their features and true positions. Both are divided by their largest
  features, which does not change attention and keeps dot products away from 0.
  """
  angle_k_BxLxHxF = jnp.where(
      mask_BxL[:, :, None, None], _project(k_BxLxHxDh, omega_HxFxDh), -1e20)

  def phi(x_BxLxHxDh, angle_BxLxHxF, axes):
    square_BxLxHx1 = jnp.square(x_BxLxHxDh.astype(jnp.float32)).sum(
        -1, keepdims=True)
    top = angle_BxLxHxF.max(axes, keepdims=True)
    phi_BxLxHxF = jnp.exp(angle_BxLxHxF - square_BxLxHx1 / 2 - top) + eps
    most = jax.lax.stop_gradient(phi_BxLxHxF.max(axes, keepdims=True))
    return (phi_BxLxHxF / most).astype(x_BxLxHxDh.dtype)

  return (phi(q_BxLxHxDh, _project(q_BxLxHxDh, omega_HxFxDh), 3),
          phi(k_BxLxHxDh, angle_k_BxLxHxF, (1, 3)))


def linear_attend(phi_q_BxLxHxM, phi_k_BxLxHxM,
                  v_BxLxHxDh, mask_BxL, *,
                  kernel: str = 'auto', eps: float = 1e-6) -> jax.Array:
  """Returns phi(Q) (phi(K)^T V) / (phi(Q) sum_j phi(K_j) + eps), [B, L, H, Dh].

  Masked keys are left out and masked positions return 0.
  """
  if _by_parts(phi_q_BxLxHxM, v_BxLxHxDh, kernel):
    sums_BxLxHxDh = linear_sums(
        phi_q_BxLxHxM, phi_k_BxLxHxM, v_BxLxHxDh, mask_BxL, kernel=kernel)
    norm_BxLxHx1 = normaliser(phi_q_BxLxHxM, phi_k_BxLxHxM, mask_BxL)
    return (sums_BxLxHxDh / (norm_BxLxHx1 + eps)).astype(v_BxLxHxDh.dtype)
  return kernels.sharded(kernels.linear_attention)(
      phi_q_BxLxHxM, phi_k_BxLxHxM, v_BxLxHxDh, mask=mask_BxL,
      feature_map='identity', eps=eps, kernel=kernel)


def normaliser(phi_q_BxLxHxM, phi_k_BxLxHxM,
               mask_BxL) -> jax.Array:
  """Returns phi(Q) sum_j phi(K_j) over tokens j: float32 [B, L, H, 1]."""
  total_Bx1xHxM = jnp.where(mask_BxL[:, :, None, None], phi_k_BxLxHxM, 0).sum(
      1, keepdims=True, dtype=jnp.float32)
  return (phi_q_BxLxHxM.astype(jnp.float32) * total_Bx1xHxM).sum(
      -1, keepdims=True)


def linear_sums(phi_q_BxLxHxM, phi_k_BxLxHxM,
                v_BxLxHxDh, mask_BxL, *,
                kernel: str = 'auto') -> jax.Array:
  """Returns phi(Q) (phi(K)^T V), not normalised: float32 [B, L, H, Dh].

  For the Pallas kernels, M features are split into heads of width Dh, and the
  results are summed. Masked keys are left out and masked positions return 0.
  """
  attend = functools.partial(
      kernels.sharded(kernels.linear_attention), mask=mask_BxL,
      feature_map='identity', normalize=False, kernel=kernel)
  if not _by_parts(phi_q_BxLxHxM, v_BxLxHxDh, kernel):
    return attend(phi_q_BxLxHxM, phi_k_BxLxHxM, v_BxLxHxDh).astype(jnp.float32)
  batch, length, heads, width = v_BxLxHxDh.shape
  q_BxLxPxDh, k_BxLxPxDh = (
      _as_heads(phi, width) for phi in (phi_q_BxLxHxM, phi_k_BxLxHxM))
  parts = q_BxLxPxDh.shape[2] // heads
  v_BxLxHxNxDh = jnp.broadcast_to(
      v_BxLxHxDh[:, :, :, None], (batch, length, heads, parts, width))
  sums_BxLxPxDh = attend(
      q_BxLxPxDh, k_BxLxPxDh, v_BxLxHxNxDh.reshape(q_BxLxPxDh.shape))
  return sums_BxLxPxDh.reshape(v_BxLxHxNxDh.shape).astype(jnp.float32).sum(3)


def _by_parts(phi_BxLxHxM, v_BxLxHxDh, kernel):
  """Returns whether features must be split into heads as wide as the values."""
  runs = kernels.resolve('linear', kernel, v_BxLxHxDh.shape, v_BxLxHxDh.dtype)
  return phi_BxLxHxM.shape != v_BxLxHxDh.shape and runs != 'xla'


@jax.custom_vjp
def _cos_and_sin(x):
  """Returns cos x and sin x, accurate to 3e-7 for |x| < 1000."""
  # Subtracts a multiple of pi and evaluates Taylor polynomials on
  # [-pi / 2, pi / 2]. XLA's functions would take most of a training step on a
  # CPU: each costs as much as four exponentials, this pair as much as 1.5.
  k = jnp.round(x / jnp.pi)
  # pi is split in two: the first part has so few bits that k times it is exact.
  x = x - k * 3.140625 - k * 9.67653589793e-4
  sign = 1 - 2 * (k - 2 * jnp.floor(k / 2))
  return tuple(sign * factor * sum_of_powers for factor, sum_of_powers in (
      (1, _polynomial(x * x, [1 / math.factorial(n) for n in range(0, 13, 2)])),
      (x, _polynomial(x * x, [1 / math.factorial(n) for n in range(1, 13, 2)]))
  ))


def _polynomial(x, coefficients):
  """Returns c_0 - c_1 x + c_2 x^2 - ..."""
  total = coefficients[-1]
  for c in coefficients[-2::-1]:
    total = c - total * x
  return total


def _cos_and_sin_forward(x):
  y = _cos_and_sin(x)
  return y, y


def _cos_and_sin_backward(y, g):
  # d cos x = -sin x dx,  d sin x = cos x dx
  return (g[1] * y[0] - g[0] * y[1],)


_cos_and_sin.defvjp(_cos_and_sin_forward, _cos_and_sin_backward)


def _project(x_BxLxHxDh, omega_HxFxDh):
  """Returns omega_f . x in float32: [B, L, H, F]."""
  omega_HxFxDh = omega_HxFxDh.astype(x_BxLxHxDh.dtype)
  if kernels.platform() == 'cpu':  # a matmul over all heads would copy there
    return jnp.stack([
        contraction.einsum('bld,fd->blf', x_BxLxHxDh[:, :, h], omega_FxDh,
                           dtype=jnp.float32)
        for h, omega_FxDh in enumerate(omega_HxFxDh)], 2)
  return jnp.einsum('blhd,hfd->blhf', x_BxLxHxDh, omega_HxFxDh,
                    preferred_element_type=jnp.float32)


def _as_heads(phi_BxLxHxM, width):
  """Splits M features into zero-filled heads: [B, L, H ceil(M / width), width].
  """
  batch, length, heads, features = phi_BxLxHxM.shape
  phi_BxLxHxM = jnp.pad(
      phi_BxLxHxM, [(0, 0)] * 3 + [(0, -features % width)])
  return phi_BxLxHxM.reshape(batch, length, -1, width)
