"""Compares ConvMixer's mixing half with its equation in float64."""

import math

import jax
import numpy as np
import pytest

from lra.models.conv_mixer import Mixer
from tests.helpers import mixer_oracle


def oracle(xp, params, x, mask):
  x = x * mask[..., None]
  n, taps = x.shape[1], params['conv']
  gap = np.arange(n)[None, :] - np.arange(n)[:, None] + len(taps) // 2
  inside = ((gap >= 0) & (gap < len(taps)))[..., None]
  matrix = taps[np.clip(gap, 0, len(taps) - 1)] * inside  # [L, L, D]
  y = xp.einsum('tsd,bsd->btd', matrix, x) + params['bias']
  erf = np.vectorize(math.erf) if xp is np else jax.scipy.special.erf
  y = y * (1 + erf(y / 2**0.5)) / 2
  y = y - y.mean(-1, keepdims=True)
  y = y / ((y**2).mean(-1, keepdims=True) + 1e-6)**0.5
  return y * params['norm']['scale'] + params['norm']['bias']


@pytest.mark.parametrize('width', [9, mixer_oracle.full(40)])
def test_equals_float64(width):
  x, mask = mixer_oracle.ragged(21, 12, 0, width=8)
  mixer_oracle.check(Mixer(conv_width=width), oracle, x, mask, tolerance=3e-5)
