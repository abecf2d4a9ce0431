"""Compares GLA with its recurrence, token by token, in float64."""

import pytest

from lra.core.errors import UserError
from lra.models.gla import Mixer
from tests.helpers import gated_oracle as parts
from tests.helpers import mixer_oracle
from tests.helpers.state_space_oracle import sigmoid


def _oracle(direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    qkv = [(name, parts.project(xp, x, p[name]))
           for name in ('query', 'key', 'value')]
    low = x @ p['forget_down']['kernel']
    forget = parts.project(xp, low, p['forget_up'], bias=True)
    decay = sigmoid(xp, forget) ** (1 / 16)

    def one_way(reverse):
      done = []
      for name, y in qkv:
        if 'query_convolution' in p:
          y = parts.convolve(
              xp, y.reshape(*mask.shape, -1),
              p[f'{name}_convolution']['kernel'], mask, reverse
          ).reshape(y.shape)
        done.append(y)
      return parts.attention(
          xp, *done, decay, mask, done[0].shape[-1]**-0.5, reverse)

    return parts.gated_output(xp, parts.both(direction, one_way), x, p)

  return oracle


@pytest.mark.every(99)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'key_width': 12, 'value_width': 9},
    {'conv_width': 3, 'gate_rank': 2}], ids=str)
def test_equals_its_recurrence(options):
  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, :3] = mask[0, 11] = False  # padding before and between tokens
  mixer_oracle.check(Mixer(num_heads=3, **options), _oracle(**options), x, mask,
                     tolerance=3e-5)


def test_size_of_the_state():
  assert Mixer(num_heads=4).state_size(64) == 2 * 4 * 8 * 16
  assert Mixer(num_heads=4, direction='causal').state_size(64) == 4 * 8 * 16


@pytest.mark.parametrize('options, match', [
    ({'num_heads': 5}, 'num_heads=5'), ({'direction': 'both'}, 'direction'),
    ({'num_heads': 4, 'kernel': 'cuda'}, 'kernel=cuda')])
def test_refusals(options, match):
  with pytest.raises(UserError, match=match):
    mixer = Mixer(**options)
    mixer_oracle.shapes(mixer, *mixer_oracle.ragged(4, width=16))
