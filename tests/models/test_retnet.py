"""Compares RetNet with its recurrence, token by token, in float64."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.retnet import Mixer
from tests.helpers import gated_oracle as parts
from tests.helpers import mixer_oracle


def _oracle(direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    q, k, v = (parts.project(xp, x, p[name])
               for name in ('query', 'key', 'value'))
    heads, width = q.shape[2:]
    q, k = mixer_oracle.turn(xp, q), mixer_oracle.turn(xp, k)
    decay = (1 - 2.0 ** (-5 - np.arange(heads)))[:, None] * np.ones(q.shape)
    o = parts.both(direction, lambda reverse: parts.attention(
        xp, q, k, v, decay, mask, width**-0.5, reverse))
    return parts.gated_output(xp, o, x, p)

  return oracle


@pytest.mark.every(99)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'key_width': 12, 'value_width': 9}], ids=str)
def test_equals_its_recurrence(options):
  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, :3] = mask[0, 11] = False  # padding before and between tokens
  mixer_oracle.check(Mixer(num_heads=3, **options), _oracle(**options), x, mask,
                     tolerance=3e-5)


def test_size_of_the_state():
  assert Mixer(num_heads=4).state_size(64) == 2 * 4 * 16 * 32
  assert Mixer(num_heads=4, direction='causal').state_size(64) == 4 * 16 * 32


@pytest.mark.parametrize('options, match', [
    ({'num_heads': 5}, 'num_heads=5'), ({'num_heads': 4}, 'width 3'),
    ({'direction': 'both'}, 'direction'),
    ({'num_heads': 3, 'kernel': 'cuda'}, 'kernel=cuda')])
def test_refusals(options, match):
  with pytest.raises(UserError, match=match):
    mixer = Mixer(**options)
    mixer_oracle.shapes(mixer, *mixer_oracle.ragged(4, width=12))
