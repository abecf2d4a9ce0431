"""Tests the numbers of a comparison with int8 on made-up answers."""

import numpy as np
import pytest
import scipy.stats

from lra.board.statistics import Sample
from lra.share import quantised


def test_a_comparison_counts_the_answers_that_only_one_has_right():
  right = np.array([[1, 1, 1, 1, 0, 0, 1], [1, 0, 0, 0, 0, 1, 1]], bool)
  samples = tuple(Sample((one.mean(),), 7, one[None]) for one in right)
  pair = quantised.Pair(None, samples, (1.0, 1.1), (8, 2), (1.0, 2.0),
                        (1.9, 2.0, 2.1))
  assert pair.only == (3, 1)
  assert pair.p == pytest.approx(scipy.stats.binomtest(1, 4).pvalue)
