"""Compares additive attention with its equation for all pairs, in float64."""


import numpy as np
import pytest

from lra.models import additive
from lra.models.additive import Mixer
from tests.helpers import gradients, mixer_oracle, small


def oracle(xp, params, x, mask):
  q, k, v = mixer_oracle.qkv(xp, x, params)
  hidden = xp.tanh(q[:, :, None] + k[:, None])  # [B, L, L, H, Dh]
  logits = xp.einsum('bijhd,hd->bhij', hidden, params['score'])
  weights = mixer_oracle.softmax(xp, logits, mask)
  return mixer_oracle.merge(
      xp, mixer_oracle.weigh(xp, weights, v), params['out'])


def test_equals_float64():
  x, mask = mixer_oracle.ragged(80, 20, 0, width=24)
  mixer_oracle.check(Mixer(num_heads=3, qkv_width=12), oracle, x, mask)


@pytest.mark.every(2)
@pytest.mark.parametrize('size', [15, 38, 500])
def test_large_queries_and_keys(size):
  """Compares with float64 for large q and k, whose sum is large or near 0."""
  rng = np.random.default_rng(0)
  q, k = (size * rng.choice([-1, 1], (1, 20, 1, 4)) for _ in range(2))
  # q + k is 0 or +-2 size. If size < 40, noise keeps the sum of 0 off 0.
  q = q + rng.uniform(-1, 1, q.shape) * (size < 40)
  v = rng.normal(size=(1, 20, 1, 3))
  weight, mask = rng.normal(size=(1, 4)), np.ones((1, 20), bool)
  arguments = [np.float32(x) for x in (q, k, v, weight)]
  found, *pulled = gradients.with_gradients(
      lambda *args: additive.attend(*args, mask, tile=7))(
          np.ones(v.shape, np.float32), *arguments)
  logits = np.einsum('bijhd,hd->bhij', np.tanh(
      np.float64(arguments[0])[:, :, None] + k[:, None]), weight)
  p = np.exp(logits - logits.max(-1, keepdims=True))
  small.assert_close(found, np.einsum(
      'bhij,bjhe->bihe', p / p.sum(-1, keepdims=True), v))
  assert all(np.isfinite(x).all() for x in pulled)
