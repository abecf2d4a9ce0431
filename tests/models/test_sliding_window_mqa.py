"""Compares multi-query sliding windows with dense softmax."""

import pytest

from lra.models.sliding_window import MultiQuery as Mixer
from tests.helpers import mixer_oracle, sparse_oracle


def _oracle(radius):
  seen = sparse_oracle.matrix(61, lambda i, j: abs(i - j) <= radius)

  def oracle(xp, params, x, mask):
    q, k, v = (mixer_oracle.heads(xp, x, params[name])
               for name in ('query', 'key', 'value'))
    k, v = (xp.concatenate([y] * q.shape[2], 2) for y in (k, v))
    o = sparse_oracle.attend(xp, q, k, v, seen & mask[:, None, None, :])
    return mixer_oracle.merge(xp, o, params['out'])

  return oracle


@pytest.mark.parametrize('heads,radius', [
    (3, 5), mixer_oracle.full(1, 20), mixer_oracle.full(4, 2**20)])
def test_equals_softmax_under_the_mask(heads, radius):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer_oracle.check(Mixer(num_heads=heads, qkv_width=12, radius=radius),
                     _oracle(radius), x, mask)


def test_keys_and_values_are_of_one_head():
  x, mask = mixer_oracle.ragged(20, width=12)
  params = mixer_oracle.shapes(Mixer(num_heads=4, qkv_width=8), x, mask)
  assert params['query']['kernel'].shape == (12, 4, 2)
  for name in ('key', 'value'):
    assert params[name]['kernel'].shape == (12, 1, 2)
    assert params[name]['bias'].shape == (1, 2)
