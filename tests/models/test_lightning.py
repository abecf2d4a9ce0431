"""Compares Lightning attention with its recurrence, written out densely."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.lightning import Mixer
from tests.helpers import mixer_oracle, small


def _oracle(direction='causal', decay=1.0, gate=False, H=3):
  slopes = 2.0 ** (-8 * np.arange(1, H + 1) / H) * decay

  def silu(xp, y):
    return y / (1 + xp.exp(-y))

  def oracle(xp, params, x, mask):
    q, k, v = (silu(xp, mixer_oracle.heads(xp, x, params[name]))
               for name in ('query', 'key', 'value'))
    t = np.arange(x.shape[1])
    gap = t[:, None] - t[None, :]
    weight = np.exp(-slopes[:, None, None] * np.abs(gap)) * (gap >= 0)
    if direction == 'bidirectional':
      weight = weight + weight.transpose(0, 2, 1)
    scores = xp.einsum('blhd,bshd->bhls', q, k) * weight
    o = mixer_oracle.weigh(xp, scores * mask[:, None, None, :], v)
    o = o * mask[:, :, None, None]
    mean = (o**2).mean((2, 3), keepdims=True)
    o = o / (mean + 1e-6)**0.5 * params['norm']['scale']
    if gate:
      o = o / (1 + xp.exp(-mixer_oracle.heads(xp, x, params['gate'])))
    return mixer_oracle.merge(xp, o, params['out'])

  return oracle


@pytest.mark.parametrize('direction, decay, gate', [
    ('causal', True, False), ('bidirectional', True, True),
    mixer_oracle.full('causal', False, False)])
def test_equals_its_recurrence(direction, decay, gate):
  x, mask = mixer_oracle.ragged(130, 77, 1, width=24)
  mixer = Mixer(num_heads=3, qkv_width=24, direction=direction, decay=decay,
                gate=gate)
  mixer_oracle.check(mixer, _oracle(direction, decay, gate), x, mask)


@pytest.mark.parametrize('layer, num_layers, factor', [
    (0, 3, 1.00001), (1, 3, 0.5000125), (2, 3, 1.4999975e-5), (0, 1, 1.00001)])
def test_slopes_shrink_with_depth(layer, num_layers, factor):
  """Slopes equal those of the released MiniMax-01 code."""
  got = Mixer(num_heads=2, decay_by_depth=True, layer=layer,
              num_layers=num_layers).slopes()
  want = factor * np.array([2.0**-4, 2.0**-8])
  np.testing.assert_allclose(got, want, rtol=1e-6)


def test_decay_by_depth_equals_the_recurrence():
  x, mask = mixer_oracle.ragged(50, 27, width=24)
  mixer = Mixer(num_heads=3, qkv_width=24, decay_by_depth=True, layer=1,
                num_layers=3)
  mixer_oracle.check(
      mixer, _oracle(decay=1 - 1 / (2 + 1e-5) + 1e-5), x, mask)


def test_without_it_all_layers_decay_alike():
  x, mask = mixer_oracle.ragged(20, width=24)
  first, last = (Mixer(num_heads=3, qkv_width=24, layer=i, num_layers=3)
                 for i in (0, 2))
  variables = mixer_oracle.init(first, x, mask)
  np.testing.assert_array_equal(mixer_oracle.apply(first, variables, x, mask),
                                mixer_oracle.apply(last, variables, x, mask))


def test_no_decay_cannot_shrink():
  c = small.config('lightning', 'listops')
  c.model.update({'decay': False, 'decay_by_depth': True})
  with pytest.raises(UserError, match='config.model.decay_by_depth'):
    small.make(c).state_shape  # noqa: B018


def test_a_causal_model_cannot_be_read_from_its_first_position():
  for pooling in ('cls', 'first'):
    c = small.config('lightning', 'listops')
    c.encoder.pooling = pooling
    with pytest.raises(UserError, match='encoder.pooling'):
      small.make(c)
    c.model.direction = 'bidirectional'
    small.make(c)


def test_unknown_direction():
  c = small.config('lightning', 'listops')
  c.model.direction = 'both'
  with pytest.raises(UserError, match='config.model.direction'):
    small.make(c).state_shape  # noqa: B018
