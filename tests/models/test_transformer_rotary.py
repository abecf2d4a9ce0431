"""Compares the rotary Transformer with float64; order must matter to it."""

import numpy as np
import pytest

from lra.models.transformer_rotary import Mixer
from tests.helpers import mixer_oracle


def oracle(xp, params, x, mask):
  q, k, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query', 'key', 'value'))
  q, k = (mixer_oracle.turn(xp, part) for part in (q, k))
  o = mixer_oracle.attention(xp, q, k, v, mask, q.shape[-1]**-0.5)
  return mixer_oracle.merge(xp, o, params['out'])


def test_equals_float64():
  x, mask = mixer_oracle.ragged(61, 20, 0, width=24)
  mixer_oracle.check(Mixer(num_heads=3, qkv_width=12), oracle, x, mask)


def _turn_alternate(xp, x):
  """Rotates as the released code does, which pairs neighbouring channels.

  It rotates whole vectors of D channels, before they are split into heads.
  """
  B, L, H, Dh = x.shape
  D = H * Dh
  pairs = x.reshape(B, L, H, 2, Dh // 2).swapaxes(3, 4).reshape(B, L, D // 2, 2)
  theta = 10_000.0 ** (-2 * np.arange(D // 2) / D)
  theta[::2] = 0
  z = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(
      1j * np.outer(np.arange(L), theta))
  return xp.stack([z.real, z.imag], -1).reshape(x.shape)


@pytest.mark.parametrize('heads', [2, mixer_oracle.full(1)])
def test_alternate_planes_of_all_heads(monkeypatch, heads):
  monkeypatch.setattr(mixer_oracle, 'turn', _turn_alternate)
  x, mask = mixer_oracle.ragged(61, 20, width=16)
  mixer_oracle.check(
      Mixer(num_heads=heads, qkv_width=12, planes='alternate'), oracle, x, mask)


def test_the_order_of_tokens_matters():
  """Tokens in another order change outputs, although no positions are added."""
  x, mask = mixer_oracle.ragged(20, width=8)
  mixer = Mixer(num_heads=2, qkv_width=8)
  variables = mixer_oracle.init(mixer, x, mask)
  order = np.random.default_rng(0).permutation(20)
  y = mixer_oracle.apply(mixer, variables, x, mask)
  z = mixer_oracle.apply(mixer, variables, x[:, order], mask)
  assert np.abs(y[:, order] - z).max() > 0.01
