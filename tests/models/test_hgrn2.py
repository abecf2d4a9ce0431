"""Compares HGRN2 with its recurrence, token by token, in float64."""

import pytest

from lra.core.errors import UserError
from lra.models.hgrn2 import Mixer
from tests.helpers import gated_oracle as parts
from tests.helpers import mixer_oracle, small
from tests.helpers.state_space_oracle import dense, sigmoid


def _oracle(direction='bidirectional', layer=0, **_):
  def oracle(xp, p, x, mask):
    q, f, v = (parts.project(xp, x, p[name], bias=True)
               for name in ('query', 'forget', 'value'))
    least = 0
    if layer and 'lower' in p:
      e = xp.exp(p['lower']['bounds'])
      least = (e[:layer].sum(0) / e.sum(0)).reshape(3, -1)
    f = least + (1 - least) * sigmoid(xp, f)
    o = parts.both(direction, lambda reverse: parts.attention(
        xp, sigmoid(xp, q), 1 - f, parts.silu(xp, v), f, mask,
        reverse=reverse)).reshape(x.shape)
    o = parts.layer_norm(xp, o, 1e-6) * p['norm']['scale'] + p['norm']['bias']
    return dense(o, p['out'])

  return oracle


@pytest.mark.every(99)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'layer': 2, 'num_layers': 4},
    {'layer': 1, 'num_layers': 4, 'lower_bound': False}], ids=str)
def test_equals_its_recurrence(options):
  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, :3] = mask[0, 11] = False  # padding before and between tokens
  mixer_oracle.check(Mixer(num_heads=3, **options), _oracle(**options), x, mask,
                     tolerance=3e-5)


def test_all_layers_share_one_table_of_bounds():
  """The encoder holds the table; without `lower_bound` there is none."""
  for lower_bound in (True, False):
    c = small.config('hgrn2', 'listops')
    c.encoder.num_layers = 3
    c.model.lower_bound = lower_bound
    params = small.make(c).state_shape.params['encoder']
    assert not any('lower' in params[f'block_{i}']['mixer'] for i in range(3))
    assert ('mixer' in params) == lower_bound
    if lower_bound:
      assert params['mixer']['bounds'].shape == (3, 16)


def test_size_of_the_state():
  assert Mixer(num_heads=4).state_size(64) == 2 * 4 * 16 * 16
  assert Mixer(num_heads=4, direction='causal').state_size(64) == 4 * 16 * 16


@pytest.mark.parametrize('options, match', [
    ({'num_heads': 5}, 'num_heads=5'), ({'direction': 'both'}, 'direction')])
def test_refusals(options, match):
  with pytest.raises(UserError, match=match):
    mixer = Mixer(**options)
    mixer_oracle.shapes(mixer, *mixer_oracle.ragged(4, width=16))
