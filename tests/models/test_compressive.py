"""The Compressive Transformer against dense attention in float64."""

import functools

import jax
import mixer_oracle
import numpy as np
import pytest
import sparse_oracle

from lra.errors import UserError
from lra.models.compressive import Mixer


def oracle(xp, params, x, mask, size=6, reach=2, rate=3):
  n = x.shape[1]
  whole = -(-n // size) * size
  zeros = xp.zeros((len(x), whole - n, x.shape[2]))
  inputs = xp.concatenate([x * mask[..., None], zeros], 1)
  there = np.pad(mask, ((0, 0), (0, whole - n)))
  i = np.arange(whole)
  apart = i[:, None] // size - i // size
  seen = [(apart <= 1) & (apart >= 0) & (i[:, None] >= i)]
  if reach:
    groups = inputs.reshape(len(x), -1, rate * x.shape[2])
    summaries = (groups @ params['compress']['kernel']
                 + params['compress']['bias'])
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


@pytest.mark.parametrize('reach', [2, 0])
def test_equals_float64(reach):
  x, mask = mixer_oracle.ragged(32, 20, 0, width=16)
  mask[0, 5:8] = False  # padding may stand between tokens
  mixer = Mixer(num_heads=2, qkv_width=12, segment_size=6,
                memory_segments=reach, rate=3)
  mixer_oracle.check(mixer, functools.partial(oracle, reach=reach), x, mask)


def test_a_rate_that_does_not_divide_the_segment_is_refused():
  x, mask = mixer_oracle.ragged(4, width=16)
  with pytest.raises(UserError, match='config.model.rate=3'):
    Mixer(segment_size=8, rate=3).init(jax.random.key(0), x, mask, train=False)
