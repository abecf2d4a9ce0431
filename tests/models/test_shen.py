"""Efficient attention against its equation in float64."""

import mixer_oracle
import numpy as np

from lra.models.shen import Mixer


def oracle(xp, params, x, mask):
  q, k, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query', 'key', 'value'))
  q = xp.exp(q) / xp.exp(q).sum(-1, keepdims=True)
  e = xp.exp(k) * mask[:, :, None, None]
  total = e.sum(1, keepdims=True)
  k = e / xp.where(total > 0, total, 1)
  o = xp.einsum('blhd,bshd,bshe->blhe', q, k, v)
  # no output of the heads at padding
  return mixer_oracle.merge(xp, o * mask[:, :, None, None], params['out'])


def test_equals_float64():
  x, mask = mixer_oracle.ragged(31, 12, 0, width=16)
  mixer_oracle.check(Mixer(num_heads=2, qkv_width=12), oracle, x, mask)


def test_large_keys_do_not_overflow():
  x, mask = mixer_oracle.ragged(9, width=16)
  mixer = Mixer(num_heads=2, qkv_width=12)
  variables = mixer_oracle.init(mixer, x, mask)
  variables['params']['key']['bias'] += 300
  variables['params']['query']['bias'] -= 300
  y = mixer_oracle.apply(mixer, variables, x, mask)
  # What all keys or all queries of a head share, changes nothing.
  variables['params']['key']['bias'] -= 300
  variables['params']['query']['bias'] += 300
  np.testing.assert_allclose(
      y, mixer_oracle.apply(mixer, variables, x, mask), atol=1e-3)
