"""Compares T5 attention with its equation, pair by pair, in float64."""

import math

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models import transformer_t5
from lra.models.transformer_t5 import Mixer
from tests.helpers import mixer_oracle


def _bucket(distance, num_buckets, max_distance):
  """Returns the bucket of one distance, as in the paper's code."""
  half = num_buckets // 2
  first = half if distance > 0 else 0
  distance = abs(distance)
  exact = half // 2
  if distance < exact:
    return first + distance
  grown = exact + int(math.log(distance / exact)
                      / math.log(max_distance / exact) * (half - exact))
  return first + min(grown, half - 1)


@pytest.mark.parametrize('sizes', [(32, 128), (8, 20), (4, 64)])
def test_buckets(sizes):
  far = np.arange(-300, 301)
  got = transformer_t5.buckets(far, *sizes)
  assert got.tolist() == [_bucket(int(d), *sizes) for d in far]
  assert set(got) == set(range(sizes[0])) - {sizes[0] // 2}


@pytest.mark.parametrize('sizes', [(8, 20), mixer_oracle.full((32, 128))])
def test_equals_float64(sizes):
  x, mask = mixer_oracle.ragged(150, 20, 0, width=16)
  i = np.arange(x.shape[1])
  bucket = np.array([[_bucket(b - a, *sizes) for b in i] for a in i.tolist()])
  hot = np.eye(sizes[0])[bucket]

  def oracle(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    bias = xp.einsum('lsk,kh->hls', hot, params['relative_bias'])
    logits = xp.einsum('blhd,bshd->bhls', q, k) / q.shape[-1]**0.5 + bias
    weights = mixer_oracle.softmax(xp, logits, mask)
    return mixer_oracle.merge(
        xp, mixer_oracle.weigh(xp, weights, v), params['out'])

  mixer = Mixer(num_heads=2, qkv_width=16, num_buckets=sizes[0],
                max_distance=sizes[1])
  mixer_oracle.check(mixer, oracle, x, mask)


@pytest.mark.parametrize('sizes', [(30, 128), (32, 8)])
def test_impossible_buckets_are_refused(sizes):
  x, mask = mixer_oracle.ragged(4, width=12)
  mixer = Mixer(num_heads=2, qkv_width=8, num_buckets=sizes[0],
                max_distance=sizes[1])
  with pytest.raises(UserError, match=f'num_buckets={sizes[0]} is not'):
    mixer_oracle.shapes(mixer, x, mask)
