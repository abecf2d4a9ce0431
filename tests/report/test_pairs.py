"""Tests of differences against SciPy, and numbers worked out by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from lra.report import pairs
from lra.report.pairs import Spread
from lra.report.statistics import Sample


def test_examples_on_which_both_agree_say_nothing():
  """8 to 1 of 9: 2 (1 + 9) / 2^9, whatever else there is."""
  for agreed in (0, 500):
    a = np.array([True] * 8 + [False] + [True] * agreed)
    b = np.array([False] * 8 + [True] + [True] * agreed)
    n = len(a)
    p = pairs.p_value(Sample((a.mean(),), n, a), Sample((b.mean(),), n, b))
    assert p == pytest.approx(2 * 10 / 2**9)


def test_the_same_answers_do_not_differ():
  same = np.array([True, False])
  assert pairs.p_value(
      Sample((0.5,), 2, same), Sample((0.5,), 2, same)) == 1


def test_without_examples_their_numbers_are_compared():
  """3 of 3 against 0 of 3: two of the 20 ways to choose 3 of 6."""
  assert pairs.p_value(Sample((1.0,), 3), Sample((0.0,), 3)) == (
      pytest.approx(0.1))


def test_many_seeds_are_compared_as_seeds():
  """Welch: t = 0.02 / sqrt(2 * 0.01^2 / 3) with 4 degrees of freedom."""
  a = Sample((0.49, 0.50, 0.51), 10**6)
  b = Sample((0.51, 0.52, 0.53), 10**6)
  t = 0.02 / math.sqrt(2e-4 / 3)
  # The distribution function of t with 4 degrees of freedom in closed form.
  u = t / math.sqrt(4 + t * t)
  assert pairs.p_value(a, b) == pytest.approx(
      1 - (1.5 * u - 0.5 * u**3), rel=1e-6)


def test_seeds_without_any_spread_leave_it_to_the_examples():
  assert 0 < pairs.p_value(
      Sample((0.5,) * 3, 100), Sample((0.6,) * 3, 100)) < 1


@pytest.mark.filterwarnings('ignore:Precision loss')
def test_all_pairs_at_once_are_the_pairs_one_by_one():
  """Against SciPy, a pair at a time: each kind of sample beside each other."""
  rng = np.random.default_rng(0)
  samples = []
  for seeds, examples, kept, spread in itertools.product(
      (1, 2, 3, 5), (200, 300), (False, True), (0.0, 0.02)):
    correct = rng.random(examples) < rng.uniform(0.4, 0.6)
    accuracies = (correct.mean(), *(
        correct.mean() + spread * rng.normal(size=seeds - 1)))
    samples.append(Sample(accuracies, examples, correct if kept else None))
  got = pairs.p_values(samples, None)
  for (i, a), (j, b) in itertools.combinations(enumerate(samples), 2):
    if min(len(a.accuracies), len(b.accuracies)) >= 3 and len(
        {*a.accuracies}) + len({*b.accuracies}) > 2:
      want = stats.ttest_ind(a.accuracies, b.accuracies, equal_var=False).pvalue
    elif a.correct is not None and b.correct is not None and (
        a.examples == b.examples):
      only = (a.correct & ~b.correct).sum(), (b.correct & ~a.correct).sum()
      want = stats.binomtest(only[0], sum(only)).pvalue
    else:
      want = stats.fisher_exact([
          [n, s.examples - n] for s in (a, b)
          for n in [round(s.accuracies[0] * s.examples)]]).pvalue
    assert got[i, j] == pytest.approx(want, rel=1e-6), (a, b)
    assert got[j, i] == got[i, j] and got[i, i] == 1


def _rows(rng, seeds, deviations, examples=10**9):
  return [Sample(tuple(rng.normal(0.5, d, n)), examples)
          for n, d in zip(seeds, deviations, strict=True)]


def test_the_spread_is_that_within_rows():
  """By hand: squares 2e-4 and 2e-4 about their means, over 1 + 3 degrees."""
  found = pairs.spread([
      Sample((0.49, 0.51), 10**6), Sample((0.9,), 10**6),
      Sample((0.19, 0.20, 0.20, 0.21), 10**6)])
  assert (found.degrees, found.rows) == (4, 2)
  assert found.deviation == pytest.approx(1e-2)


@pytest.mark.parametrize('rows', [
    [], [(0.5,)] * 9, [(0.5, 0.6, 0.4, 0.5, 0.5), (0.5,)],
    [(0.5, 0.6, 0.4), (0.5, 0.6)], [(0.5, 0.5, 0.5)] * 4],
    ids=['none', 'single seeds', 'one row', 'few degrees', 'no spread'])
def test_too_little_says_nothing_of_a_spread(rows):
  assert pairs.spread([Sample(row, 1000) for row in rows]) is None


@pytest.mark.parametrize('seed', range(30))
def test_rows_that_spread_otherwise_have_no_common_spread(seed):
  """SciPy's test of Bartlett decides, and both answers are met."""
  rng = np.random.default_rng(seed)
  rows = _rows(rng, (3, 5, 3, 4), (0.01, 0.01, 0.01, 0.01 * 2**(seed / 6)))
  alike = stats.bartlett(*(row.accuracies for row in rows)).pvalue >= 0.01
  assert (pairs.spread(rows) is not None) == alike
  assert alike or seed > 5  # the first ones spread all but alike
  assert not alike or seed < 27


def test_seeds_that_agree_to_the_example_may_spread_like_others():
  """Three of 1,000 examples happen to; ten rows of them do not."""
  rng = np.random.default_rng(0)
  rows = _rows(rng, [3] * 12, [0.005] * 12, 1000)
  assert pairs.spread([*rows, Sample((0.5,) * 3, 1000)])
  assert not pairs.spread([*rows, *[Sample((0.5,) * 3, 1000)] * 10])


def test_with_a_common_spread_seeds_are_compared_by_it():
  """Of two rows it is Student's test; its one deviation serves any row."""
  rng = np.random.default_rng(1)
  rows = _rows(rng, (4, 3), (0.01, 0.01))
  common = pairs.spread(rows)
  want = stats.ttest_ind(*(row.accuracies for row in rows)).pvalue
  assert pairs.p_values(rows, common)[0, 1] == pytest.approx(want, rel=1e-9)
  # By hand: 0.03 of a deviation of 0.01 is t = 3 for one seed and a rule, and
  # t = 3 / sqrt(1 + 1 / 4) for one seed and four.
  common = Spread(0.01, 20, 5)
  one, four = Sample((0.53,), 100), Sample((0.49, 0.5, 0.5, 0.51), 100)
  assert pairs.p_values([one, four], common)[1, 0] == pytest.approx(
      2 * stats.t.sf(3 / math.sqrt(1.25), 20), rel=1e-9)
  assert pairs.p_value_of_rule(one, Sample((0.5,), 100), common) == (
      pytest.approx(2 * stats.t.sf(3, 20), rel=1e-9))
  assert pairs.p_value_of_rule(four, Sample((0.47,), 100), common) == (
      pytest.approx(2 * stats.t.sf(6, 20), rel=1e-9))


def test_a_rule_has_no_seeds():
  """Student's t: (0.50 - 0.48) / (0.01 / sqrt(3)), two degrees of freedom."""
  three = Sample((0.49, 0.50, 0.51), 2000)
  t = 0.02 / (0.01 / math.sqrt(3))
  assert pairs.p_value_of_rule(three, Sample((0.48,), 2000)) == (
      pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-6))
  one, rule = Sample((0.5,), 2000), Sample((0.48,), 2000)
  assert pairs.p_value_of_rule(one, rule) == pairs.p_value(one, rule)
