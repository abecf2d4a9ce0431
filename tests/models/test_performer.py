"""Compares Performer with softmax attention and with its own estimate."""

import functools

import jax
import numpy as np
import pytest

from lra.models.performer import Mixer
from tests.helpers import mixer_oracle


def _attend(xp, params, x, mask, kernel):
  """Computes softmax attention with logits kernel(q, k) of scaled q and k."""
  q, k, v = mixer_oracle.qkv(xp, x, params)
  scale = q.shape[-1]**-0.25
  logits = kernel(scale * q, scale * k)
  weights = mixer_oracle.softmax(xp, logits, mask)
  return mixer_oracle.merge(xp, mixer_oracle.weigh(xp, weights, v),
                            params['out'])


def _exact(xp, params, x, mask):
  return _attend(xp, params, x, mask,
                 lambda q, k: xp.einsum('blhd,bshd->bhls', q, k))


def _by_features(phi):
  """Returns an oracle whose logits are log phi(q) . phi(k).

  Args:
    phi: function (xp, vectors, angles w . x, whether of keys, mask).
  """
  def oracle(xp, params, x, mask, omega):
    def log_kernel(q, k):
      phi_q, phi_k = (phi(xp, y, xp.einsum('blhd,hmd->blhm', y, omega), keys,
                          mask) for y, keys in ((q, False), (k, True)))
      return xp.log(xp.einsum('blhm,bshm->bhls', phi_q, phi_k))

    y = _attend(xp, params, x, mask, log_kernel)
    # without a token the heads output zeros
    return xp.where(~mask.any(1)[:, None, None], params['out']['bias'], y)

  return oracle


def _exponential(xp, y, angle, keys, mask):
  """Returns the features of Lemma 1."""
  return xp.exp(angle - (y**2).sum(-1)[..., None] / 2) / angle.shape[-1]**0.5


def _relu(xp, y, angle, keys, mask):
  """Returns those of section 4.3: (max(w . x, 0) + 0.001) / sqrt(M)."""
  return (xp.maximum(angle, 0) + 1e-3) / angle.shape[-1]**0.5


def _with_eps(eps):
  """Returns the releases' exp(w . x - |x|^2 / 2 - top) + eps.

  top is the largest w . x of a query, or of all true keys of a head.
  """
  def phi(xp, y, angle, keys, mask):
    angle = xp.where(mask[:, :, None, None], angle, -1e20)
    top = angle.max((1, 3) if keys else 3, keepdims=True)
    return xp.exp(angle - (y**2).sum(-1)[..., None] / 2 - top) + eps

  return phi


@pytest.mark.parametrize('options, phi', [
    ({'feature_map': 'relu'}, _relu),
    mixer_oracle.full({}, _exponential),
    mixer_oracle.full({'orthogonal': False}, _exponential),
    mixer_oracle.full({'eps': 0.1}, _with_eps(0.1)),
    mixer_oracle.full({'eps': 1e-6}, _with_eps(1e-6))])
def test_equals_the_estimate_of_its_frequencies(options, phi):
  x, mask = mixer_oracle.ragged(
      43, 20, *(() if 'eps' in options else (0,)), width=16)
  mixer = Mixer(num_heads=2, qkv_width=12, num_features=13, **options)
  variables = mixer_oracle.init(mixer, x, mask)
  omega = np.asarray(variables['constants']['omega'], np.float64)
  mixer_oracle.check(
      mixer, functools.partial(_by_features(phi), omega=omega), x, mask,
      variables=variables)


def test_eps_of_a_sequence_without_tokens_is_finite():
  x, mask = mixer_oracle.ragged(20, 0, width=16)
  mixer = Mixer(num_heads=2, qkv_width=12, num_features=13, eps=1e-6)
  variables = mixer_oracle.init(mixer, x, mask)

  def loss(x):
    return mixer.apply(variables, x, mask, train=False).sum()

  assert np.isfinite(jax.jit(jax.grad(loss))(x)).all()


def test_a_fresh_model_is_far_from_softmax_attention_unless_q_and_k_are_small():
  """Tests the mixer docstring's claim: Dh = 64, M = 256, normalised inputs."""
  x, mask = mixer_oracle.ragged(256, width=64)
  mixer = Mixer(num_heads=1, qkv_width=64, num_features=256)
  variables = mixer_oracle.init(mixer, x, mask, noise=0.0)
  errors = []
  for size in (1.0, 0.25):
    small_x = np.float32(size * x)
    exact = jax.tree.map(lambda p: np.asarray(p, np.float64),
                         variables['params'])
    want = _exact(np, exact, small_x.astype(np.float64), mask)
    got = mixer_oracle.apply(mixer, variables, small_x, mask)
    errors.append(np.linalg.norm(got - want) / np.linalg.norm(want))
  print(errors)
  assert errors[0] > 1 and errors[1] < 0.2


@pytest.mark.full
def test_error_falls_as_1_over_root_m():
  x, mask = mixer_oracle.ragged(24, 10, width=16)
  x *= 0.25
  errors = []
  for num_features in (32, 512):
    mixer = Mixer(num_heads=2, qkv_width=8, num_features=num_features,
                  redraw=True)
    variables = mixer_oracle.init(mixer, x, mask)
    exact = jax.tree.map(lambda p: np.asarray(p, np.float64),
                         variables['params'])
    want = _exact(np, exact, x.astype(np.float64), mask)

    def one(key, mixer=mixer, variables=variables):
      return mixer.apply(variables, x, mask, train=True, rngs={'dropout': key})

    got = mixer_oracle.quick_jit(jax.vmap(one))(
        jax.random.split(jax.random.key(5), 40))
    errors.append(np.sqrt(np.mean((np.asarray(got) - want)[:, mask]**2)))
  print(errors, np.abs(want[mask]).max())
  assert 3.2 < errors[0] / errors[1] < 5  # sqrt(512 / 32) = 4
  assert errors[1] < 0.1 * np.abs(want[mask]).max()
