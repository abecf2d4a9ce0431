"""Compares S4D, S5, LRU and long convolutions with their sums in float64."""

import jax
import numpy as np
import pytest

from lra import models
from lra.models import s4d
from lra.nn import state_space
from tests.helpers import mixer_oracle
from tests.helpers.mixer_oracle import full
from tests.helpers.recurrent_oracle import discrete, glu, recurrence


def _names(name, direction):
  return (name, f'{name}_reverse')[:1 + (direction == 'bidirectional')]


def _s4d(direction='bidirectional', activation='full_glu',
         discretisation='zoh', **_):
  def oracle(xp, p, x, mask):
    x = xp.where(mask[..., None], x, 0)
    rate = -xp.exp(p['log_decay']) + 1j * p['frequency']
    b = p['b'][..., 0] + 1j * p['b'][..., 1]
    a, factor = discrete(xp, rate, xp.exp(p['log_step'])[:, None],
                         discretisation)
    u = x[..., None] * (factor * b)  # [B, L, D, N / 2]
    y = x * p['d']
    for name in _names('c', direction):
      back = name == 'c_reverse'
      h = recurrence(xp, a, u, reverse=back)
      if back:  # the backward state starts at the next token
        h = xp.concatenate([h[:, 1:], xp.zeros_like(h[:, :1])], 1)
      c = p[name][..., 0] + 1j * p[name][..., 1]
      y = y + 2 * (h * c).sum(-1).real
    return glu(xp, y, p.get('output'), activation, exact=True)

  return oracle


def _s5(direction='bidirectional', activation='half_glu1',
        discretisation='zoh', clip_eigenvalues=False, **_):
  def oracle(xp, p, x, mask):
    x = xp.where(mask[..., None], x, 0)
    real = p['lambda_real']
    real = xp.minimum(real, -1e-4) if clip_eigenvalues else real
    rate = real + 1j * p['lambda_imaginary']
    a, factor = discrete(xp, rate, xp.exp(p['log_step']), discretisation)
    b = (p['b'][..., 0] + 1j * p['b'][..., 1]) * factor[:, None]
    u = xp.einsum('bld,nd->bln', x, b)
    y = x * p['d']
    for name in _names('c', direction):
      h = recurrence(xp, a, u, reverse=name == 'c_reverse')
      c = p[name][..., 0] + 1j * p[name][..., 1]
      y = y + 2 * xp.einsum('bln,dn->bld', h, c).real
    return glu(xp, y, p.get('output'), activation)

  return oracle


def _lru(direction='bidirectional', activation='full_glu'):
  def oracle(xp, p, x, mask):
    x = xp.where(mask[..., None], x, 0)
    a = xp.exp(-xp.exp(p['log_nu']) + 1j * xp.exp(p['log_theta']))
    b = p['b'][..., 0] + 1j * p['b'][..., 1]
    u = xp.einsum('bld,nd->bln', x, b) * xp.exp(p['log_gamma'])
    y = x * p['d']
    for name in _names('c', direction):
      h = recurrence(xp, a, u, reverse=name == 'c_reverse')
      c = p[name][..., 0] + 1j * p[name][..., 1]
      y = y + xp.einsum('bln,dn->bld', h, c).real
    return glu(xp, y, p.get('output'), activation)

  return oracle


def _long_conv(direction='bidirectional', squash=0.003, **_):
  def oracle(xp, p, x, mask):
    x = xp.where(mask[..., None], x, 0)
    i = np.arange(x.shape[1])
    parts = []
    for c, own in enumerate(p['d']):
      y = x * own
      for name in _names('kernels', direction):
        w = p[name][c]
        taps = xp.sign(w) * xp.maximum(abs(w) - squash, 0)
        lag = i[:, None] - i[None]
        if name == 'kernels_reverse':
          lag = -lag - 1
        table = xp.where(lag >= 0, taps[:, np.maximum(lag, 0)], 0)
        y = y + xp.einsum('dts,bsd->btd', table, x)
      parts.append(y)
    return glu(xp, xp.concatenate(parts, -1), p['output'], 'full_glu',
               exact=True)

  return oracle


@pytest.mark.parametrize('name, oracle, options', [
    ('s4d', _s4d, {}),
    full('s4d', _s4d, {'direction': 'causal', 'a_init': 'lin', 'tied': False}),
    full('s4d', _s4d, {'discretisation': 'bilinear', 'a_init': 'inv',
                       'activation': 'gelu'}),
    ('s5', _s5, {}),
    full('s5', _s5, {'direction': 'causal', 'activation': 'half_glu2'}),
    full('s5', _s5, {'discretisation': 'bilinear', 'activation': 'full_glu'}),
    full('s5', _s5, {'activation': 'gelu', 'c_init': 'complex',
                     'clip_eigenvalues': True}),
    ('lru', _lru, {}), full('lru', _lru, {'direction': 'causal'}),
    full('lru', _lru, {'activation': 'half_glu1'}),
    ('long_conv', _long_conv, {'full_length': 20}),
    full('long_conv', _long_conv, {'direction': 'causal', 'squash': 0.05})])
def test_equals_its_sums(name, oracle, options):
  sizes = {'s4d': {'state_dim': 8}, 'lru': {'state_dim': 10},
           's5': {'state_dim': 16, 'blocks': 2, 'dt_max': 1.0}}.get(name, {})
  x, mask = mixer_oracle.ragged(17, 9, 0, width=12)
  mixer_oracle.check(models.mixer(name)(**sizes, **options), oracle(**options),
                     x, mask, tolerance=3e-5)


def test_taps_are_dropped_for_a_whole_batch():
  x, mask = mixer_oracle.ragged(20, width=6)
  x, mask = np.repeat(x, 2, 0), np.repeat(mask, 2, 0)
  mixer = models.mixer('long_conv')(kernel_dropout=0.5)
  variables = mixer_oracle.init(mixer, x, mask)
  train = jax.jit(lambda key: mixer.apply(
      variables, x, mask, train=True, rngs={'dropout': key}))
  one, other = (np.asarray(train(jax.random.key(seed))) for seed in (0, 1))
  still = mixer_oracle.apply(mixer, variables, x, mask)
  np.testing.assert_allclose(one[0], one[1], rtol=1e-6)
  assert np.abs(one - other).max() > 1e-3 < np.abs(one - still).max()


def test_s5_starts_with_hippo():
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
  mixer = models.mixer('s5')(state_dim=size * blocks, blocks=blocks)
  params = mixer_oracle.start(mixer, x, mask)
  start = params['lambda_real'] + 1j * params['lambda_imaginary']
  np.testing.assert_allclose(start, np.tile(values, blocks), rtol=1e-5)
  # V^H of a real matrix becomes real again if pairs of states are added.
  b = np.asarray(params['b'])[:size // 2]
  inner = vectors @ (b[..., 0] + 1j * b[..., 1])
  assert 0.2 < 2 * inner.real.std() * (size * blocks)**0.5 < 3
  again = vectors.conj().T @ (2 * inner.real)
  np.testing.assert_allclose(again, b[..., 0] + 1j * b[..., 1], atol=1e-5)


def test_starts_of_s4d():
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
