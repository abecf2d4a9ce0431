"""Compares local attention with dense softmax under an explicit mask."""

import pytest

from lra.models.local import Mixer
from tests.helpers import mixer_oracle, sparse_oracle


@pytest.mark.parametrize('block', [8, mixer_oracle.full(100)])
def test_equals_softmax_under_the_mask(block):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  seen = sparse_oracle.matrix(61, lambda i, j: i // block == j // block)
  mixer_oracle.check(Mixer(num_heads=2, qkv_width=8, block_size=block),
                     sparse_oracle.mixer(seen), x, mask)


@pytest.mark.full
def test_longer_padding():
  sparse_oracle.check_longer_padding(
      Mixer(num_heads=2, qkv_width=8, block_size=9))
