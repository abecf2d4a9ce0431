"""Compares Mega with its equations, average by average and pair by pair."""

import math

import jax
import numpy as np
import pytest

from lra.models import mega
from lra.models.mega import Mixer
from tests.helpers import mixer_oracle
from tests.helpers.recurrent_oracle import dense, recurrence, sigmoid, silu


def _erf(xp, x):
  return np.vectorize(math.erf)(x) if xp is np else jax.lax.erf(x)


def _average(xp, p, x, causal, taps):
  total = x * p['own']
  for name in ('forward', 'reverse')[:1 if causal else 2]:
    gain = sigmoid(xp, p[f'{name}_step'])
    keep = 1 - gain * sigmoid(xp, p[f'{name}_damping'])
    u = x[..., None] * (gain * p[f'{name}_expand'])
    back = name == 'reverse'
    h = recurrence(xp, keep, u, back)
    if taps:  # subtract tokens `taps` or more away
      old = xp.zeros_like(h)
      if taps < h.shape[1]:
        far = h[:, taps:] if back else h[:, :-taps]
        old = xp.concatenate(
            [far, 0 * h[:, :taps]] if back else [0 * h[:, :taps], far], 1)
      h = h - keep**taps * old
    total = total + (h * p[f'{name}_project']).sum(-1) / h.shape[-1]**0.5
  return silu(xp, total)


def _oracle(attention='softmax', chunk_size=0, truncation=0,
            direction='bidirectional'):
  causal = direction == 'causal'

  def oracle(xp, p, x, mask):
    residual, x = x, xp.where(mask[..., None], x, 0)
    D, L = x.shape[2], x.shape[1]
    z_width = p['scale'].shape[1]
    v = silu(xp, dense(x, p['value']))
    m = _average(xp, p['average'], x, causal, truncation)
    base = dense(m, p['base'])
    u, h = sigmoid(xp, base[..., :D]), base[..., -D:]
    z, r = (silu(xp, y) for y in (
        base[..., D:D + z_width], base[..., D + z_width:-D]))
    q, k = (z * p['scale'][i] + p['shift'][i] for i in range(2))
    i = np.arange(L)
    gap = i[None] - i[:, None]
    size = chunk_size or L
    middle = len(p['distance']) // 2
    bias = p['distance'][np.clip(middle + gap, 0, 2 * middle)]
    seen = mask[:, None] & (i[:, None] // size == i[None] // size)
    if causal:
      seen = seen & (gap <= 0)
    products = xp.einsum('biz,bjz->bij', q, k)
    if attention == 'softmax':
      weights = xp.where(seen, xp.exp(products / z_width**0.5 + bias), 0)
      weights = weights / xp.maximum(weights.sum(-1, keepdims=True), 1e-30)
    else:
      count = np.maximum(seen.sum(-1, keepdims=True), 1)
      score = (products / count + bias - 0.707107) / (0.282095 * 2**0.5)
      weights = xp.where(seen, (1 + _erf(xp, score)) / 2, 0)
    o = xp.einsum('bij,bjv->biv', weights, v)
    update = silu(xp, h + dense(r * o, p['out']))
    return u * (update - residual)

  return oracle


@pytest.mark.every(5)
@pytest.mark.parametrize('options', [
    {}, {'attention': 'laplace'},
    {'attention': 'laplace', 'direction': 'causal', 'chunk_size': 8},
    {'chunk_size': 8, 'truncation': 5},
    {'direction': 'causal', 'truncation': 5}], ids=str)
def test_equals_its_equations(options, monkeypatch):
  monkeypatch.setattr(mega, 'ROWS', 4)  # several blocks of queries
  x, mask = mixer_oracle.ragged(19, 9, 0, width=10)
  mixer = Mixer(ema_dim=3, z_width=6, **options)
  variables = mixer_oracle.init(mixer, x, mask, noise=0.3)
  mixer_oracle.check(mixer, _oracle(**options), x, mask, tolerance=3e-5,
                     variables=variables)


def test_distances_of_cut_sequences():
  """A cut sequence gives the outputs of the whole one with padding."""
  x, mask = mixer_oracle.ragged(30, 11, width=10)
  mixer = Mixer(ema_dim=3, z_width=6, full_length=30)
  variables = mixer_oracle.init(mixer, x, mask)
  whole = mixer_oracle.apply(mixer, variables, x[1:], mask[1:])
  cut = mixer_oracle.apply(mixer, variables, x[1:, :11], mask[1:, :11])
  np.testing.assert_allclose(cut, whole[:, :11], atol=1e-5)
