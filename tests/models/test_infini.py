"""Compares Infini-attention with its equations, segment by segment."""

import functools

import numpy as np
import pytest

from lra.models.infini import Mixer
from tests.helpers import mixer_oracle


def oracle(xp, params, x, mask, size=5, delta=True):
  q, k, v = mixer_oracle.qkv(xp, x, params)

  def elu1(y):
    return xp.where(y > 0, y + 1, xp.exp(xp.where(y > 0, 0, y)))

  sq, sk = elu1(q), elu1(k) * mask[:, :, None, None]
  gate = 1 / (1 + xp.exp(-params['beta']))[:, None]
  i = np.arange(x.shape[1])
  near = (i[:, None] >= i) & (i[:, None] // size == i // size)
  logits = xp.einsum('blhd,bshd->bhls', q, k) / q.shape[-1]**0.5
  seen = near & mask[:, None, None, :]
  e = xp.where(seen, xp.exp(logits), 0)
  total = e.sum(-1, keepdims=True)
  local = mixer_oracle.weigh(xp, e / xp.where(total > 0, total, 1), v)
  # The part of each value that earlier segments have stored.
  stored = [xp.zeros_like(v[:, :0])]
  for start in range(0, x.shape[1], size):
    here, before = slice(start, start + size), slice(0, start)
    w = xp.einsum('bshd,bthd->bsth', sk[:, here], sk[:, before])
    old = xp.einsum('bsth,bthe->bshe', w, xp.concatenate(stored, 1))
    old = old / (w.sum(2) + 1e-6)[..., None]
    value = v[:, here] - (old if delta else 0)
    stored.append(value * mask[:, here, None, None])
  w = xp.einsum('bshd,bthd->bsth', sq, sk)
  w = w * (i[:, None] // size > i // size)[..., None]
  far = xp.einsum('bsth,bthe->bshe', w, xp.concatenate(stored, 1))
  far = far / (w.sum(2) + 1e-6)[..., None]
  o = gate * far + (1 - gate) * local
  return mixer_oracle.merge(xp, o, params['out'])


@pytest.mark.every(2)
@pytest.mark.parametrize('delta', [True, False])
def test_equals_float64(delta):
  x, mask = mixer_oracle.ragged(17, 8, 0, width=16)
  mask[0, 5:8] = False  # padding may stand between tokens
  mixer = Mixer(num_heads=2, qkv_width=12, segment_size=5, delta=delta)
  mixer_oracle.check(mixer, functools.partial(oracle, delta=delta), x, mask,
                     tolerance=3e-5)
