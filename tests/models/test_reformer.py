"""Compares LSH attention with dense softmax over the sets of its buckets."""

import functools

import jax
import numpy as np
import pytest

from lra.models import reformer
from lra.models.reformer import Mixer
from tests.helpers import mixer_oracle, small, sparse_oracle

SMALL = functools.partial(Mixer, num_heads=2, qkv_width=8, rounds=3,
                          chunk_size=4, num_buckets=6)


lsh_attention = jax.jit(reformer.lsh_attention, static_argnums=4)


def buckets_of(params, rotations, x):
  """Returns argmax [x R, -x R], computed in float64: [B, H, rounds, L]."""
  qk = mixer_oracle.heads(np, np.float64(x), params['query_key'])
  rotated = np.einsum('blhd,hrdm->bhrlm', qk, np.float64(rotations))
  return np.argmax(np.concatenate([rotated, -rotated], -1), -1)


def seen_by(buckets, mask, chunk):
  """Returns whether i sees j by the definition, bool [B, H, L, L]."""
  B, H, rounds, L = buckets.shape
  seen = np.zeros((B, H, L, L), bool)
  for b, h in np.ndindex(B, H):
    tokens = np.flatnonzero(mask[b])
    for bucket in buckets[b, h]:
      in_order = sorted(tokens, key=lambda i, bucket=bucket: (bucket[i], i))
      chunk_of = {i: place // chunk for place, i in enumerate(in_order)}
      for i in tokens:
        for j in tokens:
          if bucket[i] == bucket[j] and chunk_of[i] - chunk_of[j] in (0, 1):
            seen[b, h, i, j] = True
    for i in tokens:
      others = np.delete(seen[b, h, i], i).any()
      seen[b, h, i, i] = not others
  return seen


def attend(xp, qk, v, seen):
  unit = qk / xp.sqrt((qk * qk).sum(-1, keepdims=True))
  return sparse_oracle.attend(xp, qk, unit, v, seen)


@pytest.mark.full
@pytest.mark.parametrize('rounds,chunk', [
    mixer_oracle.full(1, 8), (3, 4)])
def test_mixer_equals_softmax_over_the_sets(rounds, chunk):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer = SMALL(rounds=rounds, chunk_size=chunk)
  variables = mixer_oracle.init(mixer, x, mask)
  buckets = buckets_of(variables['params'],
                       variables['constants']['rotations'], x)
  seen = seen_by(buckets, mask, chunk)
  assert (seen.sum(-1) > 2).any() and not seen[:2].all()

  def oracle(xp, params, x, mask):
    del mask
    qk, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query_key', 'value'))
    return mixer_oracle.merge(xp, attend(xp, qk, v, seen), params['out'])

  mixer_oracle.check(mixer, oracle, x, mask, variables=variables)


def test_given_buckets_including_lonely_positions():
  """With many buckets, some positions are alone in every round."""
  rng = np.random.default_rng(0)
  qk, v = rng.normal(size=(2, 2, 50, 2, 4))
  mask = np.arange(50) < np.array([50, 31])[:, None]
  buckets = rng.integers(0, 60, (2, 2, 2, 50)).astype(np.int32)
  seen = seen_by(buckets, mask, 8)
  alone = seen[..., np.arange(50), np.arange(50)]
  assert alone.any() and not alone.all()
  got = lsh_attention(np.float32(qk), np.float32(v), mask, buckets, 8)
  want = attend(np, qk, v, seen)
  mixer_oracle.close(got, want, 1e-5, 'outputs')
  small.assert_close(
      np.asarray(got).swapaxes(1, 2)[alone], v.swapaxes(1, 2)[alone])
