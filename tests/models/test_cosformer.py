"""Compares cosFormer with its equation for all pairs, in float64."""

import numpy as np
import pytest

from lra.models.cosformer import Mixer
from tests.helpers import mixer_oracle


def _oracle(full):
  def oracle(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    i = np.arange(x.shape[1])
    fade = np.cos(np.pi / 2 * (i[:, None] - i) / full)
    w = xp.einsum('blhd,bshd->bhls', xp.maximum(q, 0), xp.maximum(k, 0))
    w = w * fade * mask[:, None, None, :]
    o = mixer_oracle.weigh(xp, w / (w.sum(-1, keepdims=True) + 1e-6), v)
    # heads output 0 at padding
    return mixer_oracle.merge(xp, o * mask[:, :, None, None], params['out'])

  return oracle


@pytest.mark.parametrize('full', [None, 50])
def test_equals_float64(full):
  x, mask = mixer_oracle.ragged(31, 12, 0, width=16)
  mixer_oracle.check(Mixer(num_heads=2, qkv_width=12, full_length=full),
                     _oracle(full or 31), x, mask, tolerance=3e-5)
