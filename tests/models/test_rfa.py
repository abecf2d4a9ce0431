"""Compares random feature attention with its equations in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.models.rfa import Mixer
from lra.nn import features
from tests.helpers import mixer_oracle


def _phi(xp, x, omega, arccos=False):
  x = x / xp.sqrt((x**2).sum(-1, keepdims=True))
  angle = xp.einsum('blhd,hmd->blhm', x, omega)
  if arccos:
    return xp.where(angle > 0, angle, 0)
  return xp.concatenate([xp.cos(angle), xp.sin(angle)], -1)


def _oracle(omega, gated, arccos=False):
  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    own = omega * params['sigma'][:, None]
    w = xp.einsum('blhm,bshm->bhls', _phi(xp, q, own, arccos),
                  _phi(xp, k, own, arccos))
    w = w / omega.shape[1] * mask[:, None, None, :]
    one = xp.ones_like(w) * mask[:, None, None, :]
    if gated:  # closed form of the recurrence
      gate = params['gate']
      g = 1 / (1 + xp.exp(-(x @ gate['kernel'] + gate['bias'])))
      g = xp.moveaxis(xp.where(mask[..., None], g, 1), -1, 1)  # [B, H, L]
      total = xp.cumsum(xp.log(g), -1)
      gap = total[..., :, None] - total[..., None, :]
      i = np.arange(x.shape[1])
      seen = i[:, None] >= i
      w, one = (y * xp.exp(xp.where(seen, gap, 0)) * seen
                * (1 - g)[..., None, :] for y in (w, one))
    total = w.sum(-1, keepdims=True)
    least = xp.maximum(0.01 * one.sum(-1, keepdims=True), 1e-6)
    small = xp.where(total < 0, -least, least)
    o = mixer_oracle.weigh(
        xp, w / xp.where(abs(total) > least, total, small), v)
    return mixer_oracle.merge(xp, o * mask[:, :, None, None], params['out'])

  return oracle


@pytest.mark.full
@pytest.mark.parametrize('feature_map', ['gaussian', 'arccos'])
@pytest.mark.parametrize('gated', [False, True])
def test_equals_the_estimate_of_its_frequencies(gated, feature_map):
  x, mask = mixer_oracle.ragged(23, 10, 0, width=16)
  mask[0, 5:8] = False  # padding may stand between tokens
  mixer = Mixer(num_heads=2, qkv_width=12, num_features=40, gated=gated,
                feature_map=feature_map)
  variables = mixer_oracle.init(mixer, x, mask)
  omega = np.asarray(variables['constants']['omega'], np.float64)
  mixer_oracle.check(mixer, _oracle(omega, gated, feature_map == 'arccos'), x,
                     mask, variables=variables, tolerance=1e-4)


@pytest.mark.parametrize('gated', [False, True])
def test_sums_of_weights_keep_their_sign_and_never_come_near_zero(gated):
  x, mask = mixer_oracle.ragged(300, 290, width=16)
  mixer = Mixer(num_heads=2, qkv_width=12, num_features=6, gated=gated)
  variables = mixer_oracle.init(mixer, x, mask)
  omega = np.asarray(variables['constants']['omega'], np.float64)
  variables['params']['sigma'] = 4 * variables['params']['sigma']
  params = jax.tree.map(np.float64, variables['params'])
  want = _oracle(omega, gated)(np, params, np.float64(x), mask)
  got = mixer_oracle.apply(mixer, variables, x, mask)
  # A denominator just above its minimum magnifies rounding 100 times.
  np.testing.assert_allclose(got[mask], want[mask], rtol=1e-3, atol=1e-3)
  own = omega * params['sigma'][:, None]
  q, k = (_phi(np, mixer_oracle.heads(np, np.float64(x), params[name]), own)
          for name in ('query', 'key'))
  weight = np.einsum('blhm,bshm->blhs', q, k)[0].sum(-1) / 6 / 300
  assert (weight < -0.01).any(), 'no sum is negative: the test shows nothing'
  assert (abs(weight) < 0.01).any(), 'no sum is small: the test shows nothing'


def test_arc_cosine_features_have_the_kernel_in_closed_form():
  """Compares with half of Cho and Saul's (sin t + (pi - t) cos t) / pi."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(1, 8, 1, 5))
  x /= np.linalg.norm(x, axis=-1, keepdims=True)
  omega = rng.normal(size=(1, 400_000, 5))
  phi = np.asarray(features.arc_cosine(
      jnp.float32(x), jnp.float32(omega),
      jnp.full(omega.shape[:2], 1 / 400_000)))[0, :, 0]
  angle = np.arccos(np.clip(x[0, :, 0] @ x[0, :, 0].T, -1, 1))
  want = (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
  np.testing.assert_allclose(phi @ phi.T, want, atol=0.01)  # 5 s.e.
