"""Compares sliding windows with dense softmax under an explicit mask."""

import pytest

from lra.models.sliding_window import Mixer
from tests.helpers import mixer_oracle, sparse_oracle


@pytest.mark.parametrize('radius', [
    5, mixer_oracle.full(0), mixer_oracle.full(37),
    mixer_oracle.full(2**20)])
def test_equals_softmax_under_the_mask(radius):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  seen = sparse_oracle.matrix(61, lambda i, j: abs(i - j) <= radius)
  mixer_oracle.check(Mixer(num_heads=2, qkv_width=8, radius=radius),
                     sparse_oracle.mixer(seen), x, mask)


@pytest.mark.full
def test_longer_padding():
  sparse_oracle.check_longer_padding(Mixer(num_heads=2, qkv_width=8, radius=9))
