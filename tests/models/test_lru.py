"""Compares LRU with its recurrence, state by state, in float64."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.lru import Mixer
from tests.helpers import mixer_oracle
from tests.helpers.state_space_oracle import glu, recurrence


def _oracle(direction='bidirectional', activation='full_glu'):
  def oracle(xp, p, x, mask):
    x = xp.where(mask[..., None], x, 0)
    a = xp.exp(-xp.exp(p['log_nu']) + 1j * xp.exp(p['log_theta']))
    b = p['b'][..., 0] + 1j * p['b'][..., 1]
    u = xp.einsum('bld,nd->bln', x, b) * xp.exp(p['log_gamma'])
    y = x * p['d']
    for name in ('c', 'c_reverse')[:1 + (direction == 'bidirectional')]:
      h = recurrence(xp, a, u, reverse=name == 'c_reverse')
      c = p[name][..., 0] + 1j * p[name][..., 1]
      y = y + xp.einsum('bln,dn->bld', h, c).real
    return glu(xp, y, p.get('output'), activation)

  return oracle


@pytest.mark.every(3)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal'}, {'activation': 'half_glu1'}], ids=str)
def test_equals_its_recurrence(options):
  x, mask = mixer_oracle.ragged(17, 9, 0, width=12)
  mixer_oracle.check(Mixer(state_dim=10, **options), _oracle(**options),
                     x, mask, tolerance=3e-5)


def test_start_is_a_ring():
  x, mask = mixer_oracle.ragged(4, width=6)
  mixer = Mixer(state_dim=2000, r_min=0.6, r_max=0.8, max_phase=0.3)
  p = mixer_oracle.start(mixer, x, mask)
  size = np.exp(-np.exp(p['log_nu']))
  assert 0.6 <= size.min() < 0.61 and 0.79 < size.max() <= 0.8
  # uniform on the ring's area
  np.testing.assert_allclose(np.mean(size**2), 0.5, atol=0.01)
  phase = np.exp(p['log_theta'])
  assert phase.max() <= 0.3
  np.testing.assert_allclose(phase.mean(), 0.15, atol=0.01)
  np.testing.assert_allclose(
      np.exp(p['log_gamma']), (1 - size**2)**0.5, rtol=1e-5)


def test_size_of_the_state():
  assert Mixer(state_dim=10).state_size(64) == 40
  assert Mixer(state_dim=10, direction='causal').state_size(64) == 20


@pytest.mark.parametrize('options, match', [
    ({'r_min': 0.9, 'r_max': 0.5}, 'r_min=0.9'), ({'direction': 'both'},
                                                  'direction')])
def test_refusals(options, match):
  x, mask = mixer_oracle.ragged(4, width=6)
  with pytest.raises(UserError, match=match):
    mixer_oracle.shapes(Mixer(**options), x, mask)
