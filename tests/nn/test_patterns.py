"""Tests the windows and refusals of attention patterns."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.nn import patterns
from lra.nn.patterns import Pattern
from tests.helpers import sparse_oracle


def test_sliding_window_is_exactly_the_radius():
  for radius in (0, 1, 15, 16, 17, 40):
    want = sparse_oracle.matrix(60, lambda i, j, r=radius: abs(i - j) <= r)
    np.testing.assert_array_equal(
        sparse_oracle.seen_by(patterns.sliding_window(radius), 60), want)


@pytest.mark.parametrize('fields', [
    {'block': 0}, {'dilation': 0}, {'summary': (5, 0)}, {'offsets': ()}])
def test_impossible_patterns_are_refused(fields):
  with pytest.raises(UserError, match='pattern'):
    Pattern(**fields)
