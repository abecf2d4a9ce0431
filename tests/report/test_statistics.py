"""Intervals and tests against numbers worked out by hand or by definition."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from lra.report import statistics
from lra.report.statistics import Sample


def test_the_interval_over_seeds_is_students():
  """Mean 0.5, deviation 0.01, three seeds: 4.303 * 0.01 / sqrt(3)."""
  found = statistics.interval(Sample((0.49, 0.50, 0.51), 2000))
  assert found.over_seeds
  assert found.low == pytest.approx(0.5 - 4.3027 * 0.01 / math.sqrt(3), 1e-4)
  assert found.high == pytest.approx(0.5 + 4.3027 * 0.01 / math.sqrt(3), 1e-4)


def test_the_interval_of_one_seed_is_wilsons():
  """By its formula, p (1 - p) at both ends: (p - x)^2 = z^2 x (1 - x) / n."""
  n, p = 1000, 0.37
  found = statistics.interval(Sample((p,), n))
  assert not found.over_seeds and found.low < p < found.high
  for end in (found.low, found.high):
    assert (p - end)**2 == pytest.approx(
        1.959964**2 * end * (1 - end) / n, rel=1e-4)


@pytest.mark.parametrize('accuracy', [0.0, 1.0])
def test_no_interval_leaves_the_possible(accuracy):
  found = statistics.interval(Sample((accuracy,), 10))
  assert 0 <= found.low < found.high <= 1


def test_examples_on_which_both_agree_say_nothing():
  """8 to 1 of 9: 2 (1 + 9) / 2^9, whatever else there is."""
  for agreed in (0, 500):
    a = np.array([True] * 8 + [False] + [True] * agreed)
    b = np.array([False] * 8 + [True] + [True] * agreed)
    n = len(a)
    p = statistics.p_value(Sample((a.mean(),), n, a), Sample((b.mean(),), n, b))
    assert p == pytest.approx(2 * 10 / 2**9)


def test_the_same_answers_do_not_differ():
  same = np.array([True, False])
  assert statistics.p_value(
      Sample((0.5,), 2, same), Sample((0.5,), 2, same)) == 1


def test_without_examples_their_numbers_are_compared():
  """3 of 3 against 0 of 3: two of the 20 ways to choose 3 of 6."""
  assert statistics.p_value(Sample((1.0,), 3), Sample((0.0,), 3)) == (
      pytest.approx(0.1))


def test_many_seeds_are_compared_as_seeds():
  """Welch: t = 0.02 / sqrt(2 * 0.01^2 / 3) with 4 degrees of freedom."""
  a = Sample((0.49, 0.50, 0.51), 10**6)
  b = Sample((0.51, 0.52, 0.53), 10**6)
  t = 0.02 / math.sqrt(2e-4 / 3)
  # The distribution function of t with 4 degrees of freedom in closed form.
  u = t / math.sqrt(4 + t * t)
  assert statistics.p_value(a, b) == pytest.approx(
      1 - (1.5 * u - 0.5 * u**3), rel=1e-6)


def test_seeds_without_any_spread_leave_it_to_the_examples():
  assert 0 < statistics.p_value(
      Sample((0.5,) * 3, 100), Sample((0.6,) * 3, 100)) < 1


def test_many_pairs_need_more_evidence():
  """A pair at p = 0.04 differs alone, and not as one of three pairs."""
  def sample(wins, losses):
    first = np.array([True] * wins + [False] * losses)
    return Sample((first.mean(),), len(first), first)
  a, b = sample(14, 4), sample(0, 18)
  b = Sample(b.accuracies, b.examples, ~a.correct)
  assert 0.01 < statistics.p_value(a, b) < 0.05
  assert statistics.apart([a, b]) == {(0, 1)}
  assert statistics.apart([a, b, a]) == set()


@pytest.mark.parametrize('seed', range(20))
def test_letters_say_exactly_what_differs(seed):
  rng = np.random.default_rng(seed)
  n = int(rng.integers(1, 9))
  pairs = set(itertools.combinations(range(n), 2))
  different = {p for p in sorted(pairs) if rng.random() < 0.4}
  found = [set(text.split()) for text in statistics.letters(n, different)]
  assert all(found)
  for i, j in pairs:
    assert bool(found[i] & found[j]) == ((i, j) not in different)
  # No letter could be left out: none has all rows of another.
  members = [{i for i in range(n) if c in found[i]}
             for c in set().union(*found)]
  assert not any(a < b for a in members for b in members)


def test_letters_begin_with_the_first_row():
  assert statistics.letters(3, {(0, 2)}) == ['a', 'a b', 'b']
  many = statistics.letters(
      30, set(itertools.combinations(range(30), 2)))
  assert many[25:28] == ['z', 'aa', 'ab']


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
  got = statistics.p_values(samples)
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


def test_the_interval_of_a_difference_is_newcombes():
  """His table II: 56 of 70 against 48 of 80, method 10."""
  low, high = statistics.difference(Sample((56 / 70,), 70),
                                    Sample((48 / 80,), 80))
  assert (low, high) == (pytest.approx(0.0524, abs=5e-5),
                         pytest.approx(0.3339, abs=5e-5))
  # The other way round it is the same.
  assert statistics.difference(Sample((48 / 80,), 80), Sample((56 / 70,), 70)
                               ) == pytest.approx((-high, -low))


def test_a_rule_has_no_seeds():
  """Student's t: (0.50 - 0.48) / (0.01 / sqrt(3)), two degrees of freedom."""
  three = Sample((0.49, 0.50, 0.51), 2000)
  t = 0.02 / (0.01 / math.sqrt(3))
  assert statistics.p_value_of_rule(three, Sample((0.48,), 2000)) == (
      pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-6))
  one, rule = Sample((0.5,), 2000), Sample((0.48,), 2000)
  assert statistics.p_value_of_rule(one, rule) == statistics.p_value(one, rule)


def test_holm_stops_at_the_first_that_is_not_found():
  """Of four: 5%/4 = 0.0125, 5%/3 = 0.0167, 5%/2, 5%."""
  assert statistics.differ([0.04, 0.012, 0.017, 0.03]) == [
      False, True, False, False]
  assert statistics.differ([0.04, 0.012, 0.016, 0.025]) == [True] * 4
  assert statistics.differ([]) == []
