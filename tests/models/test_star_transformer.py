"""Compares Star-Transformer with its update rule, node by node."""

import numpy as np
import pytest

from lra.models.star_transformer import Mixer
from tests.helpers import mixer_oracle


def _multi_attention(xp, params, name, query, context):
  """Attends from N nodes [N, D], each to its own K nodes [N, K, D]."""
  q, k, v = (
      xp.einsum('nkd,dhe->nkhe', y, params[f'{name}_{kind}']['kernel']) +
      params[f'{name}_{kind}']['bias'] for y, kind in (
          (query[:, None], 'query'), (context, 'key'), (context, 'value')))
  e = xp.exp((q * k).sum(-1) * q.shape[-1]**-0.5)  # [N, K, H]
  o = ((e / e.sum(1, keepdims=True))[..., None] * v).sum(1)
  out, norm = params[f'{name}_out'], params[f'{name}_norm']
  y = xp.einsum('nhe,hed->nd', o, out['kernel']) + out['bias']
  y = xp.where(y > 0, y, 0)
  y = (y - y.mean(-1, keepdims=True)) / xp.sqrt(
      y.var(-1, keepdims=True) + 1e-6)
  return y * norm['scale'] + norm['bias']


def _oracle(rounds):
  def sequence(xp, params, embeddings):
    n = len(embeddings)
    h, s = embeddings, embeddings.mean(0)
    for t in range(rounds):
      i = np.arange(n)
      context = xp.stack([h[i - 1], h, h[(i + 1) % n], embeddings,
                          s + 0 * h], 1)
      h = _multi_attention(xp, params, f'ring_{t}', h, context)
      if t < rounds - 1:
        s = _multi_attention(
            xp, params, f'relay_{t}', s[None],
            xp.concatenate([s[None], h])[None])[0]
    return h

  def oracle(xp, params, x, mask):
    rows = []
    for b, row in enumerate(mask):
      at = np.flatnonzero(row)
      states = sequence(xp, params, x[b, at]) if len(at) else x[b, at]
      states = xp.concatenate([states, xp.zeros((1, x.shape[-1]))])
      rows.append(states[np.where(row, np.cumsum(row) - 1, -1)])
    return xp.stack(rows)

  return oracle


@pytest.mark.parametrize('rounds', [1, mixer_oracle.full(2),
                                    mixer_oracle.full(3)])
def test_equals_the_update_rule(rounds):
  x, mask = mixer_oracle.ragged(9, 6, 2, 1, 0, width=16)
  mask &= np.arange(9) != 3  # a hole: its neighbours become neighbours
  # If ReLU leaves little, LayerNorm divides by little. This may magnify
  # float32 rounding errors a hundredfold in each round.
  mixer_oracle.check(Mixer(num_heads=2, qkv_width=4, rounds=rounds),
                     _oracle(rounds), x, mask, tolerance=1e-4)
