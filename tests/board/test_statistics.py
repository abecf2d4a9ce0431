"""Tests intervals and deviations against values computed by hand."""

import math

import numpy as np
import pytest
import scipy.stats

from lra.board import statistics
from lra.board.statistics import Sample


def test_the_interval_over_seeds_is_students():
  """Three seeds of mean 0.5 and deviation 0.01: +- 4.303 * 0.01 / sqrt(3)."""
  found = statistics.interval(Sample((0.49, 0.50, 0.51), 2000))
  assert found.over_seeds
  assert found.low == pytest.approx(0.5 - 4.3027 * 0.01 / math.sqrt(3), 1e-4)
  assert found.high == pytest.approx(0.5 + 4.3027 * 0.01 / math.sqrt(3), 1e-4)


def test_the_interval_of_one_seed_is_wilsons():
  """Both ends x satisfy Wilson's equation (p - x)^2 = z^2 x (1 - x) / n."""
  n, p = 1000, 0.37
  found = statistics.interval(Sample((p,), n))
  assert not found.over_seeds and found.low < p < found.high
  for end in (found.low, found.high):
    assert (p - end)**2 == pytest.approx(
        1.959964**2 * end * (1 - end) / n, rel=1e-4)


def test_the_deviation_is_that_of_a_sample():
  """By hand, the squared differences from the mean 0.6 sum to 0.14."""
  three = Sample((0.4, 0.5, 0.9), 100)
  assert statistics.deviation(three) == pytest.approx(math.sqrt(0.07))
  assert statistics.deviation(Sample((0.4,), 100)) is None


@pytest.mark.parametrize('accuracy', [0.37, 1.0])
def test_equal_seeds_have_the_interval_of_one(accuracy):
  """Student's interval of equal seeds would have no width."""
  found = statistics.interval(Sample((accuracy,) * 3, 1000))
  assert found == statistics.interval(Sample((accuracy,), 1000))
  assert not found.over_seeds and found.high - found.low > 0.003


@pytest.mark.parametrize('accuracy', [0.0, 1.0])
def test_no_interval_leaves_the_possible(accuracy):
  found = statistics.interval(Sample((accuracy,), 10))
  assert 0 <= found.low < found.high <= 1


def test_the_interval_of_a_difference_is_newcombes():
  """Newcombe's table II, method 10, has the interval for 56/70 and 48/80."""
  low, high = statistics.difference(Sample((56 / 70,), 70),
                                    Sample((48 / 80,), 80))
  assert (low, high) == (pytest.approx(0.0524, abs=5e-5),
                         pytest.approx(0.3339, abs=5e-5))
  # With the samples swapped, the interval changes its sign.
  assert statistics.difference(Sample((48 / 80,), 80), Sample((56 / 70,), 70)
                               ) == pytest.approx((-high, -low))


def test_so_many_seeds_find_a_difference_with_the_power_of_the_table():
  """Simulates Student's tests at the first step of Holm's correction."""
  rng = np.random.default_rng(0)
  for deviation, comparisons in ((0.01, 276), (0.02, 23)):
    seeds = statistics.seeds_needed(deviation, 0.02, comparisons, 0)
    found = []
    for n in (seeds - 1, seeds):
      a, b = (rng.normal(mean, deviation, (20_000, n)) for mean in (0.52, 0.5))
      p = scipy.stats.ttest_ind(a, b, axis=1).pvalue
      found.append((p <= 0.05 / comparisons).mean())
    assert found[0] < 0.81 and 0.79 < found[1] < 0.95
    # Many seeds of other rows: the normal approximation.
    known = statistics.seeds_needed(deviation, 0.02, comparisons, 1e6)
    z = scipy.stats.norm.isf(0.025 / comparisons) + scipy.stats.norm.isf(0.2)
    assert known == np.ceil(2 * (z * deviation / 0.02)**2) < seeds
