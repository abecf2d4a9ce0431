"""Compares a Conformer's attention and convolution with the equation."""

import numpy as np

from lra.models.conformer import Mixer
from tests.helpers import mixer_oracle


def _norm(y, params):
  y = y - y.mean(-1, keepdims=True)
  y = y / ((y**2).mean(-1, keepdims=True) + 1e-6)**0.5
  return y * params['scale'] + params['bias']


def _dense(x, params):
  return x @ params['kernel'] + params['bias']


def oracle(xp, params, x, mask):
  q, k, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query', 'key', 'value'))
  a = mixer_oracle.merge(xp, mixer_oracle.attention(
      xp, q, k, v, mask, q.shape[-1]**-0.5), params['out'])
  conv = params['conv']
  y = _norm(x + a, conv['norm_in'])
  y = _dense(y, conv['value']) / (1 + xp.exp(-_dense(y, conv['gate'])))
  y = y * mask[..., None]
  n, taps = x.shape[1], conv['depthwise']
  gap = np.arange(n)[None, :] - np.arange(n)[:, None] + len(taps) // 2
  inside = ((gap >= 0) & (gap < len(taps)))[..., None]
  matrix = taps[np.clip(gap, 0, len(taps) - 1)] * inside  # [L, L, C]
  y = xp.einsum('tsd,bsd->btd', matrix, y) + conv['depthwise_bias']
  y = _norm(y, conv['norm'])
  return a + _dense(y / (1 + xp.exp(-y)), conv['out'])


def test_equals_float64():
  x, mask = mixer_oracle.ragged(21, 12, 0, width=8)
  mixer = Mixer(num_heads=2, qkv_width=12, conv_width=7, conv_expansion=2)
  mixer_oracle.check(mixer, oracle, x, mask, tolerance=3e-5)
  shapes = mixer_oracle.shapes(mixer, x, mask)
  assert shapes['conv']['depthwise'].shape == (7, 16)
