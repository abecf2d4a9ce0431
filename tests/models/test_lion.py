"""Compares LION with its form as full attention, in float64."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.lion import Mixer
from tests.helpers import gated_oracle as parts
from tests.helpers import mixer_oracle


def _features(xp, y, decay):
  if decay == 'none':
    return xp.where(y > 0, y + 1, xp.exp(xp.where(y > 0, 0, y)))
  y = parts.silu(xp, y) + 0.5
  return y / xp.sqrt((y**2).sum(-1, keepdims=True))


def _oracle(decay='selective', direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    q, k, v = (parts.project(xp, x, p[name])
               for name in ('query', 'key', 'value'))
    q, k = _features(xp, q, decay), _features(xp, k, decay)
    a = xp.ones(q.shape[:3])
    if decay != 'none':
      logit = p['forget'] + (
          x @ p['forget_of_input']['kernel'] if decay == 'selective' else 0)
      a = a / (1 + xp.exp(logit))
    log_a = xp.where(mask[..., None], xp.log(a), 0)
    until = xp.cumsum(log_a, 1)
    before = until - log_a
    i, j = np.arange(x.shape[1])[:, None], np.arange(x.shape[1])
    earlier = (i >= j)[None, :, :, None]
    weight = xp.where(
        earlier, before[:, :, None] - before[:, None],
        until[:, None] - until[:, :, None])
    weight = xp.exp(weight) * xp.einsum('bihn,bjhn->bijh', q, k)
    weight = xp.where(mask[:, None, :, None], weight, 0)
    if direction == 'causal':
      weight = xp.where(earlier, weight, 0)
    o = xp.einsum('bijh,bjhe->bihe', weight, v) / (
        weight.sum(2)[..., None] + 1e-6)
    return mixer_oracle.merge(xp, o, p['out'])

  return oracle


@pytest.mark.every(99)
@pytest.mark.parametrize('options', [
    {}, {'decay': 'fixed', 'memory': 'long'}, {'decay': 'none'},
    {'direction': 'causal'}, {'direction': 'causal', 'decay': 'fixed'}],
                         ids=str)
def test_equals_full_attention(options):
  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, :3] = mask[0, 11] = False  # padding before and between tokens
  mixer_oracle.check(Mixer(num_heads=3, **options), _oracle(**options), x, mask,
                     tolerance=3e-5)


@pytest.mark.every(99)
@pytest.mark.parametrize('decay', ['fixed', 'selective'])
def test_a_long_memory_starts_near_1(decay):
  x, mask = mixer_oracle.ragged(4, width=500)
  p = mixer_oracle.start(
      Mixer(num_heads=500, decay=decay, memory='long'), x, mask)
  rest = 1 / (1 + np.exp(-p['forget']))
  assert 0.001 <= rest.min() < 0.0012 and 0.09 < rest.max() <= 0.1001


def test_size_of_the_state():
  assert Mixer(num_heads=4).state_size(64) == 2 * 4 * 16 * 17
  assert Mixer(num_heads=4, direction='causal').state_size(64) == 4 * 16 * 17


@pytest.mark.parametrize('options, match', [
    ({'num_heads': 5}, 'num_heads=5'), ({'direction': 'both'}, 'direction'),
    ({'decay': 'slow'}, 'decay'), ({'memory': 'endless'}, 'memory')])
def test_refusals(options, match):
  with pytest.raises(UserError, match=match):
    mixer = Mixer(**options)
    mixer_oracle.shapes(mixer, *mixer_oracle.ragged(4, width=16))
