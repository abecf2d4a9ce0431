"""Compares selective attention with its equation for all pairs, in float64."""

import functools

import jax
import numpy as np
import pytest

from lra.models import selective
from lra.models.selective import Mixer
from tests.helpers import mixer_oracle, small


def _oracle(causal):
  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    L = x.shape[1]
    logits = xp.einsum('blhd,bshd->bhls', q, k) / q.shape[-1]**0.5
    i, j = np.arange(L)[:, None], np.arange(L)
    seen = (j <= i) | (not causal)
    may = seen & (j != 0) & (j != i)
    may = may & mask[:, :, None] & mask[:, None]
    select = xp.where(may, xp.maximum(logits[:, 0], 0), 0)
    earlier = np.tril(np.ones((L, L)), -1)
    forgotten = xp.einsum('ik,bkj->bij', earlier, select)
    allowed = (mask[:, None] & seen)[:, None]
    logits = xp.where(allowed, logits - forgotten[:, None], -1e30)
    e = xp.exp(logits - logits.max(-1, keepdims=True)) * allowed
    total = e.sum(-1, keepdims=True)
    weights = e / xp.where(total > 0, total, 1)
    return mixer_oracle.merge(
        xp, mixer_oracle.weigh(xp, weights, v), params['out'])
  return oracle


@pytest.mark.parametrize('direction', [
    'bidirectional', mixer_oracle.full('causal')])
def test_equals_float64(direction):
  x, mask = mixer_oracle.ragged(61, 20, 0, width=24)
  mixer_oracle.check(
      Mixer(num_heads=3, qkv_width=12, direction=direction),
      _oracle(direction == 'causal'), x, mask)


@pytest.mark.every(3)
@pytest.mark.parametrize('causal', [False, True])
@pytest.mark.parametrize('rows', [1, 7, 16])
def test_blocks_of_queries_hand_on_what_is_forgotten(causal, rows):
  rng = np.random.default_rng(0)
  q, k, v = (rng.normal(size=(2, 33, 2, 8)).astype(np.float32)
             for _ in range(3))
  mask = np.arange(33) < np.array([[33], [12]])
  run = functools.partial(selective.attend, mask_BxL=mask, causal=causal)
  small.assert_close(
      jax.jit(functools.partial(run, rows=rows))(q, k, v)[mask],
      jax.jit(functools.partial(run, rows=64))(q, k, v)[mask])
