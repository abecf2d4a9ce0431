"""Compares efficient attention with its equation in float64."""

import functools

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.shen import Mixer
from tests.helpers import mixer_oracle


def oracle(xp, params, x, mask, normalization='softmax'):
  q, k, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query', 'key', 'value'))
  if normalization == 'softmax':
    q = xp.exp(q) / xp.exp(q).sum(-1, keepdims=True)
    e = xp.exp(k) * mask[:, :, None, None]
    total = e.sum(1, keepdims=True)
    k = e / xp.where(total > 0, total, 1)
  else:
    k = k * (mask / np.maximum(mask.sum(1, keepdims=True), 1))[..., None, None]
  o = xp.einsum('blhd,bshd,bshe->blhe', q, k, v)
  # Heads return 0 at padding.
  return mixer_oracle.merge(xp, o * mask[:, :, None, None], params['out'])


@pytest.mark.parametrize('normalization', ['softmax', 'scaling'])
def test_equals_float64(normalization):
  x, mask = mixer_oracle.ragged(31, 12, 0, width=16)
  mixer_oracle.check(
      Mixer(num_heads=2, qkv_width=12, normalization=normalization),
      functools.partial(oracle, normalization=normalization), x, mask)


def test_an_unknown_normalization_is_refused():
  x, mask = mixer_oracle.ragged(4, width=16)
  with pytest.raises(UserError, match="model.normalization='mean'"):
    mixer_oracle.shapes(Mixer(normalization='mean'), x, mask)


def test_large_keys_do_not_overflow():
  x, mask = mixer_oracle.ragged(9, width=16)
  mixer = Mixer(num_heads=2, qkv_width=12)
  variables = mixer_oracle.init(mixer, x, mask)
  variables['params']['key']['bias'] += 300
  variables['params']['query']['bias'] -= 300
  y = mixer_oracle.apply(mixer, variables, x, mask)
  # A shift of all keys, or of all queries, of a head changes nothing.
  variables['params']['key']['bias'] -= 300
  variables['params']['query']['bias'] += 300
  np.testing.assert_allclose(
      y, mixer_oracle.apply(mixer, variables, x, mask), atol=1e-3)
