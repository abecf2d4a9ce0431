"""Compares Hydra with its recurrences, token by token, in float64."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.hydra import Mixer
from tests.helpers import gated_oracle as parts
from tests.helpers import mixer_oracle


def _read_before(xp, q, k, v, decay, mask, reverse):
  """Returns, for each token, the output of the token before it."""
  def step(carry, now):
    S, last = carry
    q, k, v, decay, token = now
    new = decay[..., None, None] * S + k[..., None] * v[:, :, None]
    here = xp.einsum('bhn,bhne->bhe', q, new)
    return (xp.where(token[:, None, None, None], new, S),
            xp.where(token[:, None, None], here, last)), last

  batch, _, heads, width = v.shape
  start = (xp.zeros((batch, heads, q.shape[-1], width)),
           xp.zeros((batch, heads, width)))
  return parts.loop(xp, step, start, (q, k, v, decay, mask), reverse)


def _oracle(heads, groups=1, direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    batch, length = mask.shape
    z, u, step = (x @ p[name]['kernel'] for name in ('gate', 'inputs', 'step'))
    u = parts.convolve(xp, u, p['convolution']['kernel'], mask, False,
                       p['convolution']['bias'],
                       centred=direction != 'causal')
    inner = z.shape[-1]
    v = u[..., :inner].reshape(batch, length, heads, -1)
    bc = u[..., inner:].reshape(batch, length, -1, 2, groups,
                                (u.shape[-1] - inner) // (
                                    2 * groups * step.shape[-1] // heads))
    dt = xp.log1p(xp.exp(
        step.reshape(batch, length, -1, heads) + p['step_bias']))
    y = v * (u[..., :inner] @ p['skip_of_input']['kernel']
             + p['skip'])[..., None]
    for way in range(dt.shape[2]):
      k, q = (xp.repeat(bc[:, :, way, i], heads // groups, axis=2)
              for i in (0, 1))
      y = y + _read_before(
          xp, q, k, v * dt[:, :, way, :, None],
          xp.exp(-xp.exp(p['log_rate']) * dt[:, :, way]), mask, way == 1)
    y = parts.rms(xp, y.reshape(z.shape), p['norm']['scale'])
    return (y * parts.silu(xp, z)) @ p['out']['kernel']

  return oracle


@pytest.mark.every(99)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'groups': 2, 'expand': 1},
    {'groups': 4, 'conv_width': 3}], ids=str)
def test_equals_its_recurrences(options):
  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, :3] = mask[0, 11] = False  # padding before and between tokens
  mixer_oracle.check(Mixer(num_heads=4, state_dim=5, **options),
                     _oracle(4, **options), x, mask, tolerance=3e-5)


def test_mixes_by_a_quasiseparable_matrix():
  """The matrix from dt x to y has rank N on either side of its diagonal.

  The diagonal is 0: a state space contributes nothing of the token itself.
  """
  rng = np.random.default_rng(0)
  L, N = 12, 2
  q, k = (rng.normal(size=(2, L, 1, N)) for _ in range(2))
  decay = rng.uniform(0.5, 1, size=(2, L, 1))
  v = np.eye(L)[:, :, None, None] * np.ones((1, 1, 1, 1))
  matrix = 0
  for way in (0, 1):
    repeat = lambda y: np.repeat(y[way:way + 1], L, axis=0)
    matrix += _read_before(np, repeat(q), repeat(k), v, repeat(decay),
                           np.ones((L, L), bool), way == 1)[..., 0, 0].T
  np.testing.assert_allclose(np.diag(matrix), 0)
  assert np.linalg.matrix_rank(matrix[L // 2:, :L // 2]) == N
  assert np.linalg.matrix_rank(matrix[:L // 2, L // 2:]) == N


def test_size_of_the_state():
  mixer = Mixer(num_heads=4, state_dim=6)
  assert mixer.state_size(64) == 2 * 4 * 6 * 32
  assert mixer.clone(direction='causal').state_size(64) == 4 * 6 * 32


@pytest.mark.parametrize('options, match', [
    ({'num_heads': 5}, 'num_heads=5'), ({'direction': 'both'}, 'direction'),
    ({'num_heads': 4, 'groups': 3}, 'groups=3')])
def test_refusals(options, match):
  with pytest.raises(UserError, match=match):
    mixer = Mixer(**options)
    mixer_oracle.shapes(mixer, *mixer_oracle.ragged(4, width=16))
