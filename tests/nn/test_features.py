"""Compares feature maps with the kernels they estimate, in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.nn import features
from tests.helpers import mixer_oracle, small

WIDTH = 4
DRAWS = 4000


def _points(count=6, seed=0):
  """Returns pairs of points with small norms, [2, count, WIDTH]."""
  rng = np.random.default_rng(seed)
  return 0.6 * rng.normal(size=(2, count, WIDTH)).astype(np.float32)


def _one_head(x):
  return x[None, :, None]  # [B, L, H, Dh]


def _estimates(feature, draw, num_frequencies):
  """Returns phi(x) . phi(y) of N pairs for random feature sets: [DRAWS, N]."""
  points = _points()

  def one(key):
    omega = draw(key, 1, num_frequencies, WIDTH)
    weight = jnp.full((1, num_frequencies), 1 / num_frequencies)
    x, y = (feature(_one_head(p), omega, weight)[0, :, 0] for p in points)
    return (x * y).sum(-1)

  keys = jax.random.split(jax.random.key(0), DRAWS)
  return np.asarray(mixer_oracle.quick_jit(jax.vmap(one))(keys), np.float64)


def _positive(x, omega, weight, norm_factor):
  return jnp.exp(features.positive(x, omega, weight, norm_factor))


def _softmax_kernel(x, y):
  return np.exp((x * y).sum(-1))


def _gaussian_kernel(x, y):
  return np.exp(-((x - y)**2).sum(-1) / 2)


@pytest.mark.parametrize('draw', [
    features.gaussian_frequencies,
    mixer_oracle.full(features.orthogonal_frequencies)])
@pytest.mark.parametrize('feature,kernel', [
    (functools.partial(_positive, norm_factor=0.5), _softmax_kernel),
    (functools.partial(_positive, norm_factor=1.0), _gaussian_kernel),
    (features.trigonometric, _gaussian_kernel)])
def test_estimates_are_unbiased_and_their_variance_falls_as_1_over_m(
    feature, kernel, draw):
  want = kernel(*_points().astype(np.float64))
  few, many = (_estimates(feature, draw, m) for m in (8, 32))
  error = few.std(0) / np.sqrt(DRAWS)
  assert (np.abs(few.mean(0) - want) <= 5 * error).all()
  assert few.std(0).min() > 1e-3  # not the exact kernel
  assert 1.8 < np.median(few.std(0) / many.std(0)) < 2.2  # sqrt(32 / 8) = 2


def test_orthogonal_rows_are_orthogonal_in_blocks():
  omega = features.orthogonal_frequencies(jax.random.key(0), 3, 10, 4)
  assert omega.shape == (3, 10, 4)
  for rows in (omega[:, :4], omega[:, 4:8], omega[:, 8:]):
    gram = np.einsum('hfd,hgd->hfg', rows, rows)
    off = gram * (1 - np.eye(rows.shape[1]))
    assert np.abs(off).max() < 1e-5
    assert gram.diagonal(axis1=1, axis2=2).min() > 0


def test_orthogonal_rows_stay_orthogonal_at_full_width_and_have_no_direction():
  omega = features.orthogonal_frequencies(jax.random.key(0), 8, 128, 128)
  rows = np.float64(omega / np.linalg.norm(omega, axis=-1, keepdims=True))
  gram = np.einsum('hfd,hgd->hfg', rows, rows)
  assert np.abs(gram - np.eye(128)).max() < 2e-6
  # Means of uniform unit rows have standard deviation 1 / (128 sqrt(8)).
  assert np.abs(rows.mean((0, 1))).max() < 5 / (128 * np.sqrt(8))


def test_drawing_in_a_step_calls_no_library_that_waits_for_threads():
  draw = jax.jit(functools.partial(
      features.orthogonal_frequencies, num_heads=2, num_features=8, width=4))
  assert 'lapack' not in draw.lower(jax.random.key(0)).as_text()


def test_cosines_and_sines_are_exact_to_float32_with_their_derivatives():
  omega = np.ones((1, 1, 1), np.float32)
  x = np.linspace(-1000, 1000, 100_003, dtype=np.float32)[None, :, None, None]
  cotangent = np.random.default_rng(0).normal(size=(2, x.size))

  def weigh(x):
    phi = features.trigonometric(x, omega, np.ones((1, 1), np.float32))
    return (phi[0, :, 0].T * cotangent).sum(), phi[0, :, 0].T

  (cosine, sine), angle = jax.jit(weigh)(x)[1], x[0, :, 0, 0].astype(float)
  got = jax.jit(jax.grad(lambda x: weigh(x)[0]))(x)[0, :, 0, 0]
  want = -np.sin(angle) * cotangent[0] + np.cos(angle) * cotangent[1]
  for a, b in ((cosine, np.cos(angle)), (sine, np.sin(angle)), (got, want)):
    assert np.abs(a - b).max() < 2e-6


def _unstable(log_q, log_k, v, mask):
  """Computes attention from the logarithms of features, by log-sum-exp."""
  logits = log_q[:, :, None] + log_k[:, None]  # [B, L, S, H, F]
  top = logits.max(-1)
  logits = top + np.log(np.exp(logits - top[..., None]).sum(-1))
  weights = mixer_oracle.softmax(np, logits.transpose(0, 3, 1, 2), mask)
  return mixer_oracle.weigh(np, weights, v)


@pytest.mark.parametrize('size', [mixer_oracle.full(1.0), 300.0])
def test_stabilisation_and_linear_attention_change_nothing(size):
  """Features with logarithms of several hundred give float64's results.

  M is not a multiple of Dh, and one example has no token.
  """
  rng = np.random.default_rng(0)
  log_q, log_k = size * rng.normal(size=(2, 3, 20, 2, 11)).astype(np.float32)
  v = rng.normal(size=(3, 20, 2, 4)).astype(np.float32)
  mask = np.arange(20) < np.array([20, 7, 0])[:, None]

  def attend(log_q, log_k, v):
    phi_q, phi_k = features.stable_pair(log_q, log_k, mask, jnp.float32)
    return features.linear_attend(phi_q, phi_k, v, mask)

  def loss(*args):
    return jnp.sum(jnp.sin(attend(*args)))

  got = np.asarray(jax.jit(attend)(log_q, log_k, v))
  want = _unstable(*(a.astype(np.float64) for a in (log_q, log_k, v)), mask)
  mixer_oracle.close(got[mask], want[mask], 2e-5 * max(1, size / 30), 'out')
  assert (got[~mask] == 0).all()
  grads = jax.jit(jax.grad(loss, (0, 1, 2)))(log_q, log_k, v)
  assert all(np.isfinite(g).all() for g in grads)
  assert all(np.abs(g[2]).max() == 0 for g in grads)


@pytest.mark.parametrize('num_features', [
    3, mixer_oracle.full(8), mixer_oracle.full(20)])
def test_linear_attention_takes_any_number_of_features(num_features):
  """Outputs of both kernels equal float64, and their gradients each other."""
  rng = np.random.default_rng(0)
  q, k = rng.random((2, 2, 9, 2, num_features)).astype(np.float32)
  v = rng.normal(size=(2, 9, 2, 8)).astype(np.float32)
  mask = np.arange(9) < np.array([9, 5])[:, None]
  weights = np.einsum('blhm,bshm->bhls', np.float64(q), np.float64(k))
  weights *= mask[:, None, None]
  weights /= weights.sum(-1, keepdims=True)
  want = mixer_oracle.weigh(np, weights, v)
  gradients = []
  for platform, kernel in (('cpu', 'xla'), ('tpu', 'pallas_tpu')):
    def loss(*qkv, kernel=kernel):
      o = features.linear_attend(*qkv, mask, kernel=kernel)
      return jnp.sum(jnp.sin(o)), o

    with kernels.target(platform, interpret=True):
      found, got = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(q, k, v)
    mixer_oracle.close(np.asarray(got)[mask], want[mask], 1e-5, kernel)
    gradients.append(found)
  small.assert_close(*gradients)
