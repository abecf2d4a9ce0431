"""Compares the Compressive Transformer with dense attention in float64."""

import functools

import numpy as np
import pytest

from lra.models.compressive import Mixer
from tests.helpers import mixer_oracle, sparse_oracle


def oracle(xp, params, x, mask, size=6, reach=2, rate=3,
           compression='convolution'):
  n = x.shape[1]
  whole = -(-n // size) * size
  zeros = xp.zeros((len(x), whole - n, x.shape[2]))
  inputs = xp.concatenate([x * mask[..., None], zeros], 1)
  there = np.pad(mask, ((0, 0), (0, whole - n)))
  i = np.arange(whole)
  apart = i[:, None] // size - i // size
  seen = [(apart <= 1) & (apart >= 0) & (i[:, None] >= i)]
  if reach:
    summaries = _summaries(xp, params, inputs, there, rate, compression)
    inputs = xp.concatenate([inputs, summaries], 1)
    there = np.concatenate(
        [there, there.reshape(len(x), -1, rate).any(-1)], 1)
    apart = i[:, None] // size - i[::rate] // size
    seen.append((apart >= 2) & (apart <= 1 + reach))
  q, k, v = (mixer_oracle.heads(xp, inputs, params[name])
             for name in ('query', 'key', 'value'))
  o = sparse_oracle.attend(
      xp, q[:, :whole], k, v,
      np.concatenate(seen, 1) & there[:, None, None, :])
  return mixer_oracle.merge(xp, o[:, :n], params['out'])


def _summaries(xp, params, inputs, there, rate, compression):
  """Compresses each `rate` inputs into one; padding alone gives 0."""
  if compression == 'convolution':
    groups = inputs.reshape(len(inputs), -1, rate * inputs.shape[2])
    return groups @ params['compress']['kernel'] + params['compress']['bias']
  reduce = {'mean': lambda x: x.mean(0), 'max': lambda x: x.max(0)}[compression]
  nothing = xp.zeros(inputs.shape[2])
  return xp.stack([xp.stack([
      reduce(x[i:i + rate][m[i:i + rate]]) if m[i:i + rate].any() else nothing
      for i in range(0, len(m), rate)])
      for x, m in zip(inputs, there, strict=True)])


@pytest.mark.every(3)
@pytest.mark.parametrize(('reach', 'compression'), [
    (2, 'convolution'), (2, 'mean'), (2, 'max'), (0, 'convolution')])
def test_equals_float64(reach, compression):
  x, mask = mixer_oracle.ragged(32, 20, 0, width=16)
  mask[0, 5:8] = False  # padding may stand between tokens
  mixer = Mixer(num_heads=2, qkv_width=12, segment_size=6,
                memory_segments=reach, rate=3, compression=compression)
  mixer_oracle.check(
      mixer, functools.partial(oracle, reach=reach, compression=compression), x,
      mask)


def test_a_short_sequence_is_one_segment_of_its_own_length():
  x, mask = mixer_oracle.ragged(10, 7, width=16)
  long, short = (Mixer(num_heads=2, qkv_width=12, segment_size=size, rate=4)
                 for size in (1024, 12))
  variables = mixer_oracle.init(long, x, mask)
  np.testing.assert_array_equal(
      *(mixer_oracle.apply(m, variables, x, mask) for m in (long, short)))
