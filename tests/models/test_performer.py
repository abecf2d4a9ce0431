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
