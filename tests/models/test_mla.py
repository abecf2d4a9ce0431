"""Compares multi-head latent attention with explicit keys and values."""

import pytest

from lra.core.errors import UserError
from lra.models.mla import Mixer
from tests.helpers import mixer_oracle


def _norm(xp, x, params):
  mean = (x**2).mean(-1, keepdims=True)
  return x / xp.sqrt(mean + 1e-6) * params['scale']


def oracle(xp, params, x, mask):
  """Computes equations 9-19, with a key and a value per head and token."""
  latent = lambda name: _norm(
      xp, x @ params[f'{name}_down']['kernel'], params[f'{name}_norm'])
  up = lambda c, name: mixer_oracle.heads(xp, c, params[name])
  c, cq = latent('kv'), latent('query')
  q = xp.concatenate(
      [up(cq, 'query_up'), mixer_oracle.turn(xp, up(cq, 'query_rotary'))], -1)
  content = up(c, 'key_up')
  # All heads share one rotary key.
  turned = mixer_oracle.turn(xp, up(x, 'key_rotary'))
  H = content.shape[2]
  k = xp.concatenate([content, xp.concatenate([turned] * H, 2)], -1)
  o = mixer_oracle.attention(
      xp, q, k, up(c, 'value_up'), mask, q.shape[-1]**-0.5)
  return mixer_oracle.merge(xp, o, params['out'])


@pytest.mark.parametrize('kernel', ['chunked', mixer_oracle.full('dense')])
def test_equals_float64(kernel):
  x, mask = mixer_oracle.ragged(61, 20, 0, width=24)
  mixer_oracle.check(Mixer(
      num_heads=3, qkv_width=12, kv_rank=7, query_rank=5, rotary_width=6,
      kernel=kernel), oracle, x, mask)


def test_an_odd_rotated_width_is_refused():
  x, mask = mixer_oracle.ragged(4, width=12)
  with pytest.raises(UserError, match='config.model.rotary_width=3 cannot'):
    mixer_oracle.shapes(Mixer(num_heads=2, qkv_width=8, rotary_width=3), x,
                        mask)
