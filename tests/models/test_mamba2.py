"""Compares Mamba-2 with its recurrence, token by token, in float64."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.mamba2 import Mixer
from tests.helpers import gated_oracle as parts
from tests.helpers import mixer_oracle


def _oracle(heads, groups=1, direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    z, u, step = (x @ p[name]['kernel'] for name in ('gate', 'inputs', 'step'))
    dt = xp.log1p(xp.exp(step + p['step_bias']))
    decay = xp.exp(-xp.exp(p['log_rate']) * dt)
    inner, (batch, length) = z.shape[-1], mask.shape

    def one_way(reverse):
      c = parts.convolve(xp, u, p['convolution']['kernel'], mask, reverse,
                         p['convolution']['bias'])
      v = c[..., :inner].reshape(batch, length, heads, -1)
      k, q = (xp.repeat(
          c[..., inner:].reshape(batch, length, 2, groups, -1)[:, :, i],
          heads // groups, axis=2) for i in (0, 1))
      o = parts.attention(xp, q, k, v * dt[..., None],
                          decay[..., None] * np.ones(q.shape), mask,
                          reverse=reverse)
      return o + p['skip'][:, None] * v

    y = parts.both(direction, one_way).reshape(z.shape) * parts.silu(xp, z)
    y = parts.rms(xp, y.reshape(batch, length, groups, -1), p['norm']['scale'])
    return y.reshape(z.shape) @ p['out']['kernel']

  return oracle


@pytest.mark.every(99, 1)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'groups': 2, 'expand': 1},
    {'groups': 4, 'conv_width': 3}], ids=str)
def test_equals_its_recurrence(options):
  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, :3] = mask[0, 11] = False  # padding before and between tokens
  mixer_oracle.check(Mixer(num_heads=4, state_dim=5, **options),
                     _oracle(4, **options), x, mask, tolerance=3e-5)


def test_start():
  """Initial steps are log-uniform in their range, rates uniform in 1 ... 16."""
  x, mask = mixer_oracle.ragged(4, width=4)
  p = mixer_oracle.start(Mixer(
      num_heads=2000, expand=500, state_dim=1, dt_min=0.01, dt_max=1.0), x,
                         mask)
  dt = np.log1p(np.exp(p['step_bias']))
  assert 0.01 <= dt.min() < 0.011 and 0.9 < dt.max() <= 1.001
  np.testing.assert_allclose(np.log(dt).mean(), np.log(0.1), atol=0.1)
  rate = np.exp(p['log_rate'])
  assert 1 <= rate.min() < 1.1 and 15.9 < rate.max() <= 16.001
  np.testing.assert_allclose(rate.mean(), 8.5, atol=0.3)


def test_size_of_the_state():
  mixer = Mixer(num_heads=4, state_dim=6)
  assert mixer.state_size(64) == 2 * 4 * 6 * 32
  assert mixer.clone(direction='causal').state_size(64) == 4 * 6 * 32


@pytest.mark.parametrize('options, match', [
    ({'num_heads': 5}, 'num_heads=5'), ({'direction': 'both'}, 'direction'),
    ({'num_heads': 4, 'groups': 3}, 'groups=3'),
    ({'num_heads': 4, 'dt_min': 0.5}, 'dt_min=0.5'),
    ({'num_heads': 4, 'kernel': 'cuda'}, 'kernel=cuda')])
def test_refusals(options, match):
  with pytest.raises(UserError, match=match):
    mixer = Mixer(**options)
    mixer_oracle.shapes(mixer, *mixer_oracle.ragged(4, width=16))
