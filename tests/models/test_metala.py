"""Compares MetaLA with its recurrence, token by token, in float64."""

import pytest

from lra.core.errors import UserError
from lra.models.metala import Mixer
from tests.helpers import gated_oracle as parts
from tests.helpers import mixer_oracle
from tests.helpers.state_space_oracle import sigmoid


def _oracle(direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    def one_way(reverse):
      u = x
      if 'convolution' in p:
        u = parts.convolve(xp, x, p['convolution']['kernel'], mask, reverse)
      q, v = (parts.project(xp, u, p[name]) for name in ('query', 'value'))
      decay = sigmoid(xp, parts.project(xp, u, p['forget'])) ** (1 / 16)
      o = parts.attention(
          xp, q, 1 - decay, v, decay, mask, q.shape[-1]**-0.5, reverse)
      if 'augmentation' in p:
        own = (q * (1 - decay) * p['augmentation']).sum(-1, keepdims=True)
        o = o + sigmoid(xp, own * v)
      return parts.layer_norm(xp, o, 1e-5) * parts.silu(
          xp, parts.project(xp, u, p['gate'], bias=True))

    return xp.einsum('blhe,hed->bld', parts.both(direction, one_way),
                     p['out']['kernel'])

  return oracle


@pytest.mark.every(99)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'key_width': 12, 'augmentation': False},
    {'conv_width': 3}], ids=str)
def test_equals_its_recurrence(options):
  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, :3] = mask[0, 11] = False  # padding before and between tokens
  mixer_oracle.check(Mixer(num_heads=3, **options), _oracle(**options), x, mask,
                     tolerance=5e-5)


def test_size_of_the_state():
  assert Mixer(num_heads=4).state_size(64) == 2 * 4 * 8 * 16
  assert Mixer(num_heads=4, direction='causal').state_size(64) == 4 * 8 * 16


@pytest.mark.parametrize('options, match', [
    ({'num_heads': 5}, 'num_heads=5'), ({'direction': 'both'}, 'direction')])
def test_refusals(options, match):
  with pytest.raises(UserError, match=match):
    mixer = Mixer(**options)
    mixer_oracle.shapes(mixer, *mixer_oracle.ragged(4, width=16))
