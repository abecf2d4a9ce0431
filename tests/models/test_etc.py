"""Compares ETC with a dense softmax that has a vector for every pair."""

import numpy as np
import pytest

from lra.models.etc import Mixer
from tests.helpers import mixer_oracle, sparse_oracle

# sharing: function (query side, key side) -> names of the projections
NAMES = {
    'all': lambda query, key: ('query', 'key', 'value'),
    'sides': lambda query, key: [
        f'{query}_{name}' for name in ('query', 'key', 'value')],
    'none': lambda query, key: [f'{query}_query', f'{query}_{key}_key',
                                f'{query}_{key}_value']}


def _oracle(radius, num_global, k, sharing):
  sides = ('global', 'long')
  side = np.array([sides[i >= num_global] for i in range(61)])
  label = np.array([[np.clip(j - i, -k, k) + k if side[i] == side[j]
                     else 2 * k + 1 for j in range(61)] for i in range(61)])
  seen = sparse_oracle.matrix(61, lambda i, j: (
      'global' in (side[i], side[j]) or abs(i - j) <= radius))

  def oracle(xp, params, x, mask):
    logits, values = 0, []
    for query in sides:
      for key in sides:
        names = NAMES[sharing](query, key)
        pair = (side == query)[:, None] & (side == key)
        if not pair.any():
          continue
        q, k_, v = (mixer_oracle.heads(xp, x, params[name]) for name in names)
        a = params[f'{query}_labels'][label]  # [L, L, H, Dh]
        dots = (xp.einsum('blhd,bshd->bhls', q, k_) +
                xp.einsum('blhd,lshd->bhls', q, a))
        logits = logits + xp.where(pair, dots * q.shape[-1]**-0.5, 0)
        values.append((pair, v))
    weights = mixer_oracle.softmax_under(
        xp, logits, np.broadcast_to(seen & mask[:, None, None, :],
                                    logits.shape))
    o = sum(mixer_oracle.weigh(xp, weights * pair, v) for pair, v in values)
    return mixer_oracle.merge(xp, o, params['out'])

  return oracle


@pytest.mark.full
@pytest.mark.parametrize('radius,num_global,k,sharing', [
    (18, 3, 4, 'none'), mixer_oracle.full(5, 1, 30, 'sides'),
    mixer_oracle.full(0, 2, 0, 'all'), mixer_oracle.full(5, 0, 2, 'all'),
    mixer_oracle.full(2**20, 3, 4, 'all')])
def test_equals_softmax_with_labels(radius, num_global, k, sharing):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer = Mixer(num_heads=2, qkv_width=8, radius=radius, num_global=num_global,
                max_distance=k, sharing=sharing)
  variables = mixer_oracle.init(mixer, x, mask, noise=0.3)
  mixer_oracle.check(mixer, _oracle(radius, num_global, k, sharing), x, mask,
                     variables=variables)
