"""Compares S4D with its recurrence, mode by mode, in float64."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models import s4d
from lra.models.s4d import Mixer
from tests.helpers import mixer_oracle
from tests.helpers.state_space_oracle import discrete, glu, recurrence


def _oracle(direction='bidirectional', activation='full_glu', method='zoh'):
  def oracle(xp, p, x, mask):
    x = xp.where(mask[..., None], x, 0)
    rate = -xp.exp(p['log_decay']) + 1j * p['frequency']
    b = p['b'][..., 0] + 1j * p['b'][..., 1]
    a, factor = discrete(xp, rate, xp.exp(p['log_step'])[:, None], method)
    u = x[..., None] * (factor * b)  # [B, L, D, N / 2]
    y = x * p['d']
    for name in ('c', 'c_reverse')[:1 + (direction == 'bidirectional')]:
      back = name == 'c_reverse'
      h = recurrence(xp, a, u, reverse=back)
      if back:  # the backward state starts at the next token
        h = xp.concatenate([h[:, 1:], xp.zeros_like(h[:, :1])], 1)
      c = p[name][..., 0] + 1j * p[name][..., 1]
      y = y + 2 * (h * c).sum(-1).real
    return glu(xp, y, p.get('output'), activation, exact=True)

  return oracle


@pytest.mark.every(3)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'a_init': 'lin', 'tied': False},
    {'discretisation': 'bilinear', 'a_init': 'inv', 'activation': 'gelu'}],
    ids=str)
def test_equals_its_recurrence(options):
  x, mask = mixer_oracle.ragged(17, 9, 0, width=12)
  kept = {'discretisation': 'method'}
  oracle = _oracle(**{kept.get(k, k): v for k, v in options.items()
                      if k not in ('a_init', 'tied')})
  mixer_oracle.check(Mixer(state_dim=8, **options), oracle, x, mask,
                     tolerance=3e-5)


def test_starts():
  """Initial modes equal the paper's (section 4, equations 8, 9) and HiPPO's."""
  lin, _ = s4d.modes('lin', 8)
  np.testing.assert_allclose(lin, -0.5 + 1j * np.pi * np.array([0, 1, 2, 3]))
  inv, one = s4d.modes('inv', 4)
  np.testing.assert_allclose(inv, [-0.5 + 12j / np.pi, -0.5 + 4j / 3 / np.pi])
  np.testing.assert_allclose(one, 1)
  size = 6
  n = np.arange(size)
  skew = np.sqrt(np.outer(2 * n + 1, 2 * n + 1)) / 2
  skew = np.triu(skew, 1) - np.tril(skew, -1)
  values, b = s4d.modes('legs', size)
  want = np.linalg.eigvals(skew)
  np.testing.assert_allclose(
      np.sort(values.imag), np.sort(want.imag)[:size // 2], rtol=1e-9)
  np.testing.assert_allclose(values.real, -0.5)
  assert b.shape == (3,) and np.abs(b.imag).max() <= 2


@pytest.mark.parametrize('tied, shared', [(True, 1), (False, 12)])
def test_what_channels_share(tied, shared):
  x, mask = mixer_oracle.ragged(4, width=12)
  p = mixer_oracle.shapes(Mixer(state_dim=8, tied=tied), x, mask)
  assert p['b'].shape == (shared, 4, 2) and p['frequency'].shape == (shared, 4)
  assert p['c'].shape == (12, 4, 2) and p['log_step'].shape == (12,)


def test_size_of_the_state():
  assert Mixer(state_dim=8).state_size(12) == 2 * 96
  assert Mixer(state_dim=8, direction='causal').state_size(12) == 96


@pytest.mark.parametrize('options, match', [
    ({'state_dim': 7}, 'state_dim=7'), ({'direction': 'both'}, 'direction'),
    ({'a_init': 'fourier'}, 'a_init')])
def test_refusals(options, match):
  x, mask = mixer_oracle.ragged(4, width=6)
  with pytest.raises(UserError, match=match):
    mixer_oracle.shapes(Mixer(**options), x, mask)
