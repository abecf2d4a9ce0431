"""Compares window and sinks with dense softmax under an explicit mask."""

import numpy as np
import pytest

from lra.models.attention_sink import Mixer
from tests.helpers import mixer_oracle, sparse_oracle


@pytest.mark.parametrize('radius,sinks', [
    (5, 4), mixer_oracle.full(3, 0), mixer_oracle.full(0, 1),
    mixer_oracle.full(20, 30)])
def test_equals_softmax_under_the_mask(radius, sinks):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  seen = sparse_oracle.matrix(
      61, lambda i, j: abs(i - j) <= radius or j < sinks)
  mixer_oracle.check(
      Mixer(num_heads=2, qkv_width=8, radius=radius, num_sinks=sinks),
      sparse_oracle.mixer(seen), x, mask)


def test_sinks_are_read_by_all_and_read_their_window_only():
  pattern, = Mixer(radius=3, num_sinks=2).patterns(50)
  seen = pattern.mask(50)
  assert seen[:, :2].all()
  np.testing.assert_array_equal(np.flatnonzero(seen[1]), np.arange(5))
