"""Compares Longformer with dense softmax under an explicit mask."""

import numpy as np
import pytest

from lra.models.longformer import Mixer
from tests.helpers import mixer_oracle, sparse_oracle


def oracle_of(window, dilation, num_global):
  def sees(i, j):
    near = abs(i - j) <= window // 2 * dilation and (i - j) % dilation == 0
    return near or j < num_global

  seen = sparse_oracle.matrix(61, sees)

  def oracle(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    o = sparse_oracle.attend(xp, q, k, v, seen & mask[:, None, None, :])
    if num_global:
      q = mixer_oracle.heads(xp, x, params['global_query'])
      k = mixer_oracle.heads(xp, x, {'kernel': params['global_key']})
      v = mixer_oracle.heads(xp, x, {'kernel': params['global_value'],
                                     'bias': params['global_value_bias']})
      everything = np.broadcast_to(mask[:, None, None, :], (*mask.shape[:1], 1,
                                                            61, 61))
      rows = sparse_oracle.attend(xp, q, k, v, everything)
      o = xp.concatenate([rows[:, :num_global], o[:, num_global:]], 1)
    return mixer_oracle.merge(xp, o, params['out'])

  return oracle


@pytest.mark.parametrize('window,dilation,num_global', [
    (6, 3, 2), mixer_oracle.full(41, 1, 1), mixer_oracle.full(2**20, 1, 0),
    mixer_oracle.full(0, 1, 1)])
def test_equals_softmax_under_the_mask(window, dilation, num_global):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer = Mixer(num_heads=2, qkv_width=8, window=window, dilation=dilation,
                num_global=num_global)
  mixer_oracle.check(mixer, oracle_of(window, dilation, num_global), x, mask)


def test_global_projections_are_there_only_if_used():
  x, mask = mixer_oracle.ragged(20, width=12)
  with_global = mixer_oracle.shapes(Mixer(num_heads=2, qkv_width=8), x, mask)
  without = mixer_oracle.shapes(
      Mixer(num_heads=2, qkv_width=8, num_global=0), x, mask)
  assert set(with_global) - set(without) == {
      'global_query', 'global_key', 'global_value', 'global_value_bias'}
  assert with_global['global_key'].shape == (12, 2, 4)


@pytest.mark.parametrize('dilation', [mixer_oracle.full(1), 2])
def test_longer_padding(dilation):
  sparse_oracle.check_longer_padding(
      Mixer(num_heads=2, qkv_width=8, window=10, dilation=dilation))
