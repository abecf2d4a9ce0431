"""Compares mLSTM with its recurrence without a stabiliser, in float64."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.models.mlstm import Mixer
from tests.helpers import gated_oracle as parts
from tests.helpers import mixer_oracle
from tests.helpers.state_space_oracle import sigmoid


def _memory(xp, q, k, v, gate, forget, mask, reverse):
  """Computes C and n token by token, without a stabiliser."""
  def step(carry, now):
    C, n = carry
    q, k, v, gate, forget, token = now
    new_C = forget[..., None, None] * C + (
        gate[..., None, None] * k[..., None] * v[:, :, None])
    new_n = forget[..., None] * n + gate[..., None] * k
    C = xp.where(token[:, None, None, None], new_C, C)
    n = xp.where(token[:, None, None], new_n, n)
    below = xp.maximum(xp.abs((q * n).sum(-1)), 1)
    h = xp.einsum('bhn,bhne->bhe', q, C) / below[..., None]
    return (C, n), xp.where(token[:, None, None], h, 0)

  start = (xp.zeros((len(q), *k.shape[2:], v.shape[-1])),
           xp.zeros((len(q), *k.shape[2:])))
  return parts.loop(xp, step, start, (q, k, v, gate, forget, mask), reverse)


def _oracle(heads, forget_gate='sigmoid', direction='bidirectional', **_):
  def oracle(xp, p, x, mask):
    u, z = x @ p['inputs']['kernel'], x @ p['gate']['kernel']

    def blocks(y, weight):
      y = y.reshape(*mask.shape, *weight.shape[:2])
      return xp.einsum('blki,kio->blko', y, weight).reshape(z.shape)

    def one_way(reverse):
      c = parts.convolve(xp, u, p['convolution']['kernel'], mask, reverse,
                         p['convolution']['bias'])
      qkv = [blocks(c, p['query']), blocks(c, p['key']), blocks(u, p['value'])]
      both = xp.concatenate(qkv, -1)
      gate, forget = (both @ p[name]['kernel'] + p[name]['bias']
                      for name in ('input_gate', 'forget_gates'))
      forget = (sigmoid(xp, forget) if forget_gate == 'sigmoid'
                else xp.exp(forget))
      q, k, v = (y.reshape(*mask.shape, heads, -1) for y in qkv)
      h = _memory(xp, q, k / k.shape[-1]**0.5, v, xp.exp(gate), forget, mask,
                  reverse)
      return h, c

    ways = [one_way(reverse) for reverse in (False, True)[
        :1 + (direction == 'bidirectional')]]
    h = parts.layer_norm(xp, sum(h for h, _ in ways), 1e-5).reshape(z.shape)
    y = h * p['norm'] + p['skip'] * sum(c for _, c in ways)
    return (y * parts.silu(xp, z)) @ p['out']['kernel']

  return oracle


@pytest.mark.every(99, 1)
@pytest.mark.parametrize('options', [
    {}, {'direction': 'causal', 'forget_gate': 'exponential'},
    {'expand': 1, 'block_width': 6, 'conv_width': 3}], ids=str)
def test_equals_its_recurrence(options):
  x, mask = mixer_oracle.ragged(19, 9, 0, width=12)
  mask[0, :3] = mask[0, 11] = False  # padding before and between tokens
  mixer_oracle.check(Mixer(num_heads=3, **options), _oracle(3, **options), x,
                     mask, tolerance=5e-5)


@pytest.mark.full
@pytest.mark.parametrize('size', [-100.0, 100.0])
def test_gates_out_of_the_range_of_float32(size):
  """Gates exp(+-100), not representable in float32, give the float64 result."""
  x, mask = mixer_oracle.ragged(19, 9, width=12)
  mixer = Mixer(num_heads=3, direction='causal')
  variables = mixer_oracle.init(mixer, x, mask)
  gate = variables['params']['input_gate']
  gate['bias'] = gate['bias'] + np.float32(size)
  mixer_oracle.check(mixer, _oracle(3, direction='causal'), x, mask,
                     tolerance=3e-4, variables=variables)


def test_start():
  x, mask = mixer_oracle.ragged(4, width=8)
  p = mixer_oracle.start(Mixer(num_heads=4), x, mask)
  np.testing.assert_allclose(p['forget_gates']['bias'], [3, 4, 5, 6])
  assert not p['input_gate']['kernel'].any()
  assert not p['forget_gates']['kernel'].any()


def test_size_of_the_state():
  assert Mixer(num_heads=4).state_size(64) == 2 * 4 * (32 * 33 + 1)
  assert Mixer(num_heads=4, direction='causal').state_size(64) == (
      4 * (32 * 33 + 1))


@pytest.mark.parametrize('options, match', [
    ({'num_heads': 5}, 'num_heads=5'), ({'direction': 'both'}, 'direction'),
    ({'num_heads': 4, 'block_width': 5}, 'block_width=5'),
    ({'forget_gate': 'tanh'}, 'forget_gate')])
def test_refusals(options, match):
  with pytest.raises(UserError, match=match):
    mixer = Mixer(**options)
    mixer_oracle.shapes(mixer, *mixer_oracle.ragged(4, width=16))
