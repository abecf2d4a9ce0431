"""Compares local-p attention with its equation over all pairs."""

import numpy as np
import pytest

from lra.models import luong_local
from lra.models.luong_local import Mixer
from tests.helpers import mixer_oracle


def _oracle(half_width):
  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    hidden = xp.tanh(mixer_oracle.heads(xp, x, params['centre']))
    share = 1 / (1 + xp.exp(-(hidden * params['centre_score']).sum(-1)))
    outs = []
    for b, row in enumerate(mask):
      at = np.flatnonzero(row)  # token n is at position at[n]
      apart = np.arange(len(at)) - (len(at) * share[b])[..., None]
      seen = abs(apart) <= half_width
      logits = xp.einsum('lhd,shd->lhs', q[b], k[b, at]) * q.shape[-1]**-0.5
      e = xp.where(seen, xp.exp(logits), 0)
      weights = e / e.sum(-1, keepdims=True) * xp.exp(
          -apart**2 / (2 * (half_width / 2)**2))
      outs.append(xp.einsum('lhs,shd->lhd', weights, v[b, at]))
    return mixer_oracle.merge(xp, xp.stack(outs), params['out'])

  return oracle


def _draw(mixer):
  """Returns x, a mask with gaps, and variables with widely spread centres."""
  x, mask = mixer_oracle.ragged(61, 40, 1, width=12)
  mask &= (np.arange(61) % 7 != 3) | (np.arange(61) < 1)
  variables = mixer_oracle.init(mixer, x, mask)
  variables['params']['centre_score'] *= 4
  return x, mask, variables


@pytest.mark.full
@pytest.mark.parametrize('half_width,chunk', [
    (3, 16), mixer_oracle.full(1, 128), mixer_oracle.full(40, 7),
    mixer_oracle.full(2**20, 128)])
def test_equals_the_equation(monkeypatch, half_width, chunk):
  monkeypatch.setattr(luong_local, 'CHUNK', chunk)
  mixer = Mixer(num_heads=2, qkv_width=8, half_width=half_width)
  x, mask, variables = _draw(mixer)
  # A float32 centre near 50 is exact to 4e-6 tokens. The Gaussian may be
  # narrower than a token, so this error matters.
  mixer_oracle.check(mixer, _oracle(half_width), x, mask, variables=variables,
                     tolerance=1e-4)
