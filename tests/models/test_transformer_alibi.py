"""Compares ALiBi with its equation, pair by pair, in float64."""

import numpy as np
import pytest

from lra.models.transformer_alibi import Mixer
from tests.helpers import mixer_oracle

# Published: the slopes of eight heads are 1/2, 1/4 ... 1/256 (section 3).
SLOPES = {8: [2.0**-i for i in range(1, 9)], 2: [1 / 16, 1 / 256]}


@pytest.mark.parametrize('heads', [mixer_oracle.full(8), 2])
def test_equals_float64(heads):
  def oracle(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    i = np.arange(x.shape[1])
    bias = -np.array(SLOPES[heads])[:, None, None] * abs(i[:, None] - i)
    logits = xp.einsum('blhd,bshd->bhls', q, k) / q.shape[-1]**0.5 + bias
    weights = mixer_oracle.softmax(xp, logits, mask)
    return mixer_oracle.merge(
        xp, mixer_oracle.weigh(xp, weights, v), params['out'])

  x, mask = mixer_oracle.ragged(150, 20, 0, width=16)
  mixer_oracle.check(Mixer(num_heads=heads, qkv_width=16), oracle, x, mask)
