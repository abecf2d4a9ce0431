"""Compares Sinkhorn attention with its equations in float64."""

import functools

import jax
import numpy as np
import pytest

from lra.models import sinkhorn
from lra.models.sinkhorn import Mixer
from tests.helpers import mixer_oracle, small, sparse_oracle

SMALL = functools.partial(Mixer, num_heads=2, qkv_width=8, block_size=8,
                          iterations=4, sort_width=6)


def blocks(xp, x, size):
  """Cuts into zero-padded blocks: [B, L, ...] -> [B, N, size, ...]."""
  missing = -x.shape[1] % size
  x = xp.concatenate([x, xp.zeros((x.shape[0], missing, *x.shape[2:]))], 1)
  return x.reshape(x.shape[0], -1, size, *x.shape[2:])


def normalise(xp, scores, block_mask, iterations):
  """Divides by row sums and column sums in turn; skips padded blocks."""
  both = block_mask[:, None, :, None] & block_mask[:, None, None, :]
  s = xp.where(both, xp.exp(scores), 0)
  for _ in range(iterations):
    for axis in (3, 2):
      total = s.sum(axis, keepdims=True)
      s = s / xp.where(total > 0, total, 1)
  return s


def attention(xp, q, k, v, mask, sort, size):
  """Softmax over own and sorted blocks, under [L, 2 N size] masks."""
  B, L, H, Dh = q.shape
  keep = mask[:, :, None, None]
  kb, vb = (blocks(xp, xp.where(keep, x, 0), size) for x in (k, v))
  sorted_k, sorted_v = (xp.einsum('bhnm,bmihd->bnihd', sort, x)
                        for x in (kb, vb))
  slots = xp.einsum('bhnm,bmi->bhni', sort, blocks(xp, mask * 1.0, size))
  N = kb.shape[1]
  keys, values = (
      xp.concatenate([x.reshape(B, N * size, H, Dh) for x in pair], 1)
      for pair in ((kb, sorted_k), (vb, sorted_v)))
  same_block = np.arange(L)[:, None] // size == np.arange(N * size) // size
  own = blocks(xp, mask, size).reshape(B, 1, N * size) > 0
  valid = xp.concatenate([
      xp.broadcast_to(own, (B, H, N * size)),
      slots.reshape(B, H, N * size) > 0], -1)
  seen = np.tile(same_block, 2) & valid[:, :, None, :]
  logits = xp.einsum('blhd,bshd->bhls', q, keys) * Dh**-0.5
  return mixer_oracle.weigh(
      xp, mixer_oracle.softmax_under(xp, logits, seen), values)


def oracle(xp, params, x, mask, noise=0.0):
  q, k, v = mixer_oracle.qkv(xp, x, params)
  sums = blocks(xp, xp.where(mask[..., None], x, 0), 8).sum(2)
  hidden, out = params['sort_hidden'], params['sort_out']
  hidden = xp.maximum(sums @ hidden['kernel'] + hidden['bias'], 0)
  scores = xp.einsum('bnf,fhm->bhnm', hidden, out['kernel'])
  scores = (scores + out['bias'][:, None, :] + noise) / 0.75
  sort = normalise(xp, scores, blocks(xp, mask, 8).any(-1), 4)
  return mixer_oracle.merge(
      xp, attention(xp, q, k, v, mask, sort, 8), params['out'])


@pytest.mark.full
def test_mixer_equals_float64():
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer_oracle.check(SMALL(), oracle, x, mask)


def test_normalisation_equals_float64_and_approaches_doubly_stochastic():
  rng = np.random.default_rng(0)
  scores = 1.5 * rng.normal(size=(2, 2, 6, 6))
  block_mask = np.arange(6) < np.array([6, 4])[:, None]
  distances = []
  for iterations in (1, 5, 30):
    got = np.asarray(sinkhorn.sinkhorn(np.float32(scores), block_mask,
                                       iterations))
    want = normalise(np, scores, block_mask, iterations)
    mixer_oracle.close(got, want, 1e-5, f'{iterations} iterations')
    small.assert_close(
        got.sum(2), block_mask[:, None] * np.ones((2, 2, 6)))
    distances.append(np.abs(got.sum(3) - block_mask[:, None]).max())
  assert distances[0] > distances[1] > distances[2] and distances[2] < 1e-3


def test_noise_is_added_before_the_temperature_divides(monkeypatch):
  """A training output equals the oracle's with the same noise."""
  x, mask = mixer_oracle.ragged(40, 23, width=12)
  variables = mixer_oracle.init(SMALL(), x, mask)
  noise = np.random.default_rng(0).gumbel(size=(2, 5, 5))  # of each example
  monkeypatch.setattr(
      sinkhorn, '_gumbel', lambda keys, shape: np.float32(noise))
  got = jax.jit(functools.partial(SMALL().apply, train=True))(
      variables, x, mask, rngs={'dropout': jax.random.key(0)})
  exact = jax.tree.map(np.float64, variables['params'])
  want = oracle(np, exact, x.astype(np.float64), mask,
                np.stack([noise] * 2))
  mixer_oracle.close(np.asarray(got)[mask], want[mask], 1e-5, 'outputs')
