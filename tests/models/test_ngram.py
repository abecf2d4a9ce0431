"""Compares N-gram attention with dense softmax under an explicit mask."""

import pytest

from lra.core.errors import UserError
from lra.models.ngram import Mixer
from tests.helpers import mixer_oracle, small, sparse_oracle


@pytest.mark.parametrize('order', [
    6, mixer_oracle.full(1), mixer_oracle.full(40),
    mixer_oracle.full(2**20)])
def test_equals_softmax_under_the_mask(order):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  seen = sparse_oracle.matrix(61, lambda i, j: 0 <= i - j < order)
  mixer_oracle.check(Mixer(num_heads=2, qkv_width=8, order=order),
                     sparse_oracle.mixer(seen), x, mask)


def test_what_comes_later_changes_nothing():
  x, mask = mixer_oracle.ragged(40, width=12)
  mixer = Mixer(num_heads=2, qkv_width=8, order=9)
  variables = mixer_oracle.init(mixer, x, mask)
  later = x.copy()
  later[:, 25:] = 7
  small.assert_close(mixer_oracle.apply(mixer, variables, later, mask)[:, :25],
                     mixer_oracle.apply(mixer, variables, x, mask)[:, :25])


@pytest.mark.parametrize('pooling', ['cls', 'first'])
def test_it_cannot_be_read_from_its_first_position(pooling):
  c = small.config('ngram', 'listops')
  small.make(c)
  c.encoder.pooling = pooling
  with pytest.raises(UserError, match='choose mean or last'):
    small.make(c)
