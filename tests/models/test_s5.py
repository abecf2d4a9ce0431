"""Compares S5 with its recurrence, state by state, in float64."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.s5 import Mixer
from lra.nn import state_space
from tests.helpers import mixer_oracle
from tests.helpers.state_space_oracle import discrete, glu, recurrence


def _oracle(direction='bidirectional', activation='half_glu1', method='zoh',
            clip=False):
  def oracle(xp, p, x, mask):
    x = xp.where(mask[..., None], x, 0)
    real = xp.minimum(p['lambda_real'], -1e-4) if clip else p['lambda_real']
    rate = real + 1j * p['lambda_imaginary']
    a, factor = discrete(xp, rate, xp.exp(p['log_step']), method)
    b = (p['b'][..., 0] + 1j * p['b'][..., 1]) * factor[:, None]
    u = xp.einsum('bld,nd->bln', x, b)
    y = x * p['d']
    for name in ('c', 'c_reverse')[:1 + (direction == 'bidirectional')]:
      h = recurrence(xp, a, u, reverse=name == 'c_reverse')
      c = p[name][..., 0] + 1j * p[name][..., 1]
      y = y + 2 * xp.einsum('bln,dn->bld', h, c).real
    return glu(xp, y, p.get('output'), activation)

  return oracle


@pytest.mark.every(4)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'activation': 'half_glu2'},
    {'discretisation': 'bilinear', 'activation': 'full_glu'},
    {'activation': 'gelu', 'c_init': 'complex', 'clip_eigenvalues': True}],
    ids=str)
def test_equals_its_recurrence(options):
  x, mask = mixer_oracle.ragged(17, 9, 0, width=12)
  names = {'discretisation': 'method', 'clip_eigenvalues': 'clip'}
  oracle = _oracle(**{names.get(k, k): v for k, v in options.items()
                      if k != 'c_init'})
  mixer_oracle.check(
      Mixer(state_dim=16, blocks=2, dt_max=1.0, **options), oracle, x, mask,
      tolerance=3e-5)


def test_start_is_that_of_hippo():
  """The initial A and B equal HiPPO-LegS, computed from its definition."""
  size, blocks = 8, 3
  n = np.arange(size)
  whole = np.zeros((size, size))
  for i, j in np.ndindex(size, size):
    if i > j:
      whole[i, j] = -((2 * i + 1) * (2 * j + 1)) ** 0.5
    elif i == j:
      whole[i, j] = -(i + 1)
  p = (n + 0.5) ** 0.5
  values, vectors = state_space.legs(size)
  both = vectors @ np.diag(values) @ vectors.conj().T
  np.testing.assert_allclose(
      2 * both.real, whole + np.outer(p, p), atol=1e-9)
  x, mask = mixer_oracle.ragged(4, width=6)
  mixer = Mixer(state_dim=size * blocks, blocks=blocks)
  params = mixer_oracle.start(mixer, x, mask)
  start = params['lambda_real'] + 1j * params['lambda_imaginary']
  np.testing.assert_allclose(start, np.tile(values, blocks), rtol=1e-5)
  # V^H of a real matrix becomes real again if pairs of states are added.
  b = np.asarray(params['b'])[:size // 2]
  inner = vectors @ (b[..., 0] + 1j * b[..., 1])
  assert 0.2 < 2 * inner.real.std() * (size * blocks)**0.5 < 3
  again = vectors.conj().T @ (2 * inner.real)
  np.testing.assert_allclose(again, b[..., 0] + 1j * b[..., 1], atol=1e-5)


def test_size_of_the_state():
  assert Mixer(state_dim=16, blocks=2).state_size(64) == 32
  assert Mixer(state_dim=16, direction='causal').state_size(64) == 16


@pytest.mark.parametrize('options, match', [
    ({'state_dim': 12, 'blocks': 4}, 'state_dim=12'),
    ({'direction': 'both'}, 'direction'), ({'c_init': 'zero'}, 'c_init'),
    ({'activation': 'relu'}, 'activation'), ({'dt_min': 0.2}, 'dt_min'),
    ({'discretisation': 'euler'}, 'discretisation')])
def test_refusals(options, match):
  x, mask = mixer_oracle.ragged(4, width=6)
  with pytest.raises(UserError, match=match):
    mixer_oracle.shapes(Mixer(**options), x, mask)
