"""Compares attention-augmented convolution with its equation in float64."""

import numpy as np
import pytest

from lra.models.aa_conv import Mixer
from tests.helpers import mixer_oracle


def oracle(xp, params, x, mask):
  q, k, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query', 'key', 'value'))
  o = mixer_oracle.merge(xp, mixer_oracle.attention(
      xp, q, k, v, mask, q.shape[-1]**-0.5), params['out'])
  if 'conv' not in params:
    return o
  conv, n = params['conv'], x.shape[1]
  taps = conv['kernel'].reshape(-1, x.shape[-1], conv['bias'].size)
  x = x * mask[..., None]
  y = conv['bias']
  for i, tap in enumerate(taps):
    shift = np.eye(n, k=i - len(taps) // 2)
    y = y + xp.einsum('ts,bsd,de->bte', shift, x, tap)
  return xp.concatenate([y, o], -1)


@pytest.mark.parametrize('share, width, attended', [
    (0.25, 3, 4), mixer_oracle.full(0.7, 4, 12),
    mixer_oracle.full(1.0, 3, 16)])
def test_equals_float64(share, width, attended):
  x, mask = mixer_oracle.ragged(17, 9, 0, width=16)
  mixer = Mixer(num_heads=2, value_share=share, key_share=0.5,
                conv_width=width)
  mixer_oracle.check(mixer, oracle, x, mask)
  shapes = mixer_oracle.shapes(mixer, x, mask)
  assert shapes['query']['kernel'].shape == (16, 2, 4)
  assert shapes['out']['kernel'].shape == (2, attended // 2, attended)
  assert ('conv' in shapes) == (attended < 16)
