"""Compares mixers of linear cost with their equations for all pairs, float64.
"""

import functools

import numpy as np
import pytest

from lra import models
from lra.models import lightning, shen
from tests.helpers import mixer_oracle


def _cosformer(full):
  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    i = np.arange(x.shape[1])
    fade = np.cos(np.pi / 2 * (i[:, None] - i) / full)
    w = xp.einsum('blhd,bshd->bhls', xp.maximum(q, 0), xp.maximum(k, 0))
    w = w * fade * mask[:, None, None, :]
    o = mixer_oracle.weigh(xp, w / (w.sum(-1, keepdims=True) + 1e-6), v)
    # heads output 0 at padding
    return mixer_oracle.merge(xp, o * mask[:, :, None, None], params['out'])

  return oracle


def _shen(xp, params, x, mask, normalization='softmax'):
  q, k, v = mixer_oracle.qkv(xp, x, params)
  if normalization == 'softmax':
    q = xp.exp(q) / xp.exp(q).sum(-1, keepdims=True)
    e = xp.exp(k) * mask[:, :, None, None]
    total = e.sum(1, keepdims=True)
    k = e / xp.where(total > 0, total, 1)
  else:
    k = k * (mask / np.maximum(mask.sum(1, keepdims=True), 1))[..., None, None]
  o = xp.einsum('blhd,bshd,bshe->blhe', q, k, v)
  # Heads return 0 at padding.
  return mixer_oracle.merge(xp, o * mask[:, :, None, None], params['out'])


def test_large_keys_of_shen_do_not_overflow():
  x, mask = mixer_oracle.ragged(9, width=16)
  mixer = shen.Mixer(num_heads=2, qkv_width=12)
  variables = mixer_oracle.init(mixer, x, mask)
  variables['params']['key']['bias'] += 300
  variables['params']['query']['bias'] -= 300
  y = mixer_oracle.apply(mixer, variables, x, mask)
  # A shift of all keys, or of all queries, of a head changes nothing.
  variables['params']['key']['bias'] -= 300
  variables['params']['query']['bias'] += 300
  np.testing.assert_allclose(
      y, mixer_oracle.apply(mixer, variables, x, mask), atol=1e-3)


def _lightning(direction='causal', decay=1.0, gate=False, H=3):
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


DEPTH = {'decay_by_depth': True, 'layer': 1, 'num_layers': 3}


@pytest.mark.parametrize('layer, num_layers, factor', [
    (0, 3, 1.00001), (1, 3, 0.5000125), (2, 3, 1.4999975e-5), (0, 1, 1.00001)])
def test_slopes_shrink_with_depth(layer, num_layers, factor):
  """Slopes equal those of the released MiniMax-01 code."""
  mixer = lightning.Mixer(num_heads=2, decay_by_depth=True, layer=layer,
                          num_layers=num_layers)
  np.testing.assert_allclose(
      mixer.slopes(), factor * np.array([2.0**-4, 2.0**-8]), rtol=1e-6)


def _linformer(xp, params, x, mask, sharing='kv'):
  q, k, v = mixer_oracle.qkv(xp, x, params)
  e = params['E']
  assert len(e) == (2 if sharing == 'none' else 1)
  f = e if sharing == 'kv' else params['F']
  compressed = []
  for y, matrix in ((k, e), (v, f)):
    y = y * mask[:, :, None, None]
    compressed.append(xp.stack([
        xp.einsum('bld,lm->bmd', y[:, :, h], matrix[h % len(matrix)])
        for h in range(q.shape[2])], 2))
  everything = np.ones((x.shape[0], e.shape[-1]), bool)
  o = mixer_oracle.attention(xp, q, *compressed, everything, q.shape[-1]**-0.5)
  return mixer_oracle.merge(xp, o, params['out'])


@pytest.mark.parametrize('name, options, oracle, lengths', [
    *(('cosformer', {'full_length': full}, _cosformer(full or 31), (31, 12, 0))
      for full in (None, 50)),
    *(('shen', {'normalization': kind}, functools.partial(
        _shen, normalization=kind), (31, 12, 0))
      for kind in ('softmax', 'scaling')),
    *(('lightning', {'num_heads': 3, 'qkv_width': 24, **options}, _lightning(
        options.get('direction', 'causal'), decay, 'gate' in options),
       (130, 77, 1)) for options, decay in (
           ({'direction': 'bidirectional', 'gate': True}, 1.0),
           (DEPTH, 1 - 1 / (2 + 1e-5) + 1e-5),
           ({'layer': 2, 'num_layers': 3}, 1.0), ({'decay': False}, 0.0))),
    *(('linformer', {'num_landmarks': 10, 'sharing': sharing},
       functools.partial(_linformer, sharing=sharing), (61, 20, 0))
      for sharing in ('none', 'headwise', 'kv'))],
    ids=lambda x: x if isinstance(x, str) else '')
def test_equals_float64(name, options, oracle, lengths):
  x, mask = mixer_oracle.ragged(*lengths, width=16)
  mixer_oracle.check(
      models.mixer(name)(**{'num_heads': 2, 'qkv_width': 12, **options}),
      oracle, x, mask, tolerance=3e-5)
