"""Additive attention against its equation, all pairs at once, in float64."""

import functools

import jax
import mixer_oracle
import numpy as np
import pytest

import small
from lra.models import additive
from lra.models.additive import Mixer


def oracle(xp, params, x, mask):
  q, k, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query', 'key', 'value'))
  hidden = xp.tanh(q[:, :, None] + k[:, None])  # [B, L, L, H, Dh]
  logits = xp.einsum('bijhd,hd->bhij', hidden, params['score'])
  weights = mixer_oracle.softmax(xp, logits, mask)
  return mixer_oracle.merge(
      xp, mixer_oracle.weigh(xp, weights, v), params['out'])


def test_equals_float64():
  x, mask = mixer_oracle.ragged(80, 20, 0, width=24)
  mixer_oracle.check(Mixer(num_heads=3, qkv_width=12), oracle, x, mask)


@pytest.mark.parametrize('tile', [1, 7, 16])
def test_tiles_are_one_softmax(tile):
  rng = np.random.default_rng(0)
  q, k, v = (rng.normal(size=(2, 33, 2, 8)).astype(np.float32)
             for _ in range(3))
  weight = rng.normal(size=(2, 8)).astype(np.float32)
  mask = np.arange(33) < np.array([[33], [12]])
  run = lambda tile: jax.jit(functools.partial(additive.attend, tile=tile))(
      q, k, v, weight, mask)
  small.assert_close(run(tile), run(64))
