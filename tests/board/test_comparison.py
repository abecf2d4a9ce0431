"""Tests the comparison of rows against SciPy and values computed by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from lra.board import statistics
from lra.board.statistics import Sample, Spread


def test_all_pairs_at_once_are_the_pairs_one_by_one():
  """`p_values`, which tests all pairs at once, agrees with SciPy on each pair.
  """
  rng = np.random.default_rng(0)
  samples = []
  for seeds, examples, kept in itertools.product(
      (1, 2, 3), (200, 300), (False, True)):
    correct = rng.random((seeds, examples)) < rng.uniform(0.3, 0.7)
    samples.append(Sample(tuple(correct.mean(1).tolist()), examples,
                          correct if kept else None))
  got = statistics.p_values(samples, None)
  for (i, a), (j, b) in itertools.combinations(enumerate(samples), 2):
    of_seeds, signs = [], set()
    for s, t in itertools.product(
        range(len(a.accuracies)), range(len(b.accuracies))):
      if a.correct is not None and b.correct is not None and (
          a.examples == b.examples):
        x, y = a.correct[s], b.correct[t]
        only = (x & ~y).sum(), (y & ~x).sum()
        of_seeds.append(stats.binomtest(only[0], sum(only)).pvalue)
      else:
        of_seeds.append(stats.fisher_exact([
            [n, sample.examples - n] for sample, seed in ((a, s), (b, t))
            for n in [round(sample.accuracies[seed] * sample.examples)]
        ]).pvalue)
      signs.add(np.sign(a.accuracies[s] - b.accuracies[t]))
    want = max(of_seeds) if len(signs) == 1 else 1
    assert got[i, j] == pytest.approx(want, rel=1e-6), (a, b)
    assert got[j, i] == got[i, j] and got[i, i] == 1


def _rows(rng, seeds, deviations, examples=10**9):
  return [Sample(tuple(rng.normal(0.5, d, n)), examples)
          for n, d in zip(seeds, deviations, strict=True)]


@pytest.mark.parametrize('rows', [
    [], [(0.5,)] * 9, [(0.5, 0.6, 0.4, 0.5, 0.5), (0.5,)],
    [(0.5, 0.6, 0.4), (0.5, 0.6)], [(0.5, 0.5, 0.5)] * 4,
    [(0.5, 0.6, 0.4)] * 3 + [(0.5,)] * 4],
    ids=['none', 'single seeds', 'one row', 'few degrees', 'no spread',
         'most of one seed'])
def test_too_little_says_nothing_of_a_spread(rows):
  assert statistics.spread([Sample(row, 1000) for row in rows]) is None


@pytest.mark.parametrize('unlike', [0.0, 1.0])
def test_the_spread_is_the_likeliest_at_the_lowest_weight(unlike):
  """SciPy's F density and optimiser find the same spread, without a grid."""
  rng = np.random.default_rng(0)
  rows = _rows(rng, [3] * 20 + [5] * 10, 0.01 * np.exp(
      rng.normal(0, unlike, 30)))
  found = statistics.spread([*rows, Sample((0.9,), 10**9)])
  assert (found.degrees, found.rows) == (80, 30)
  degrees = np.array([len(r.accuracies) - 1 for r in rows])
  squares = np.array([np.var(r.accuracies, ddof=1) for r in rows])

  def against(weight, log_variance):
    v = np.exp(log_variance)
    return -(stats.f.logpdf(squares / v, degrees, weight) - np.log(v)).sum()

  def best(weight):
    return optimize.minimize_scalar(
        lambda x: against(weight, x), bounds=np.log([1e-7, 1e-2]),
        method='bounded', options={'xatol': 1e-9})
  most = min(best(w).fun for w in np.geomspace(0.5, 1000, 300))
  there = best(found.weight)
  assert found.deviation == pytest.approx(np.exp(there.x / 2), rel=0.02)
  # `bound` is that of a one-sided test at 5%; one grid step is 4%.
  bound = most + stats.norm.ppf(0.95)**2 / 2
  assert there.fun <= bound + 1e-3 and best(found.weight / 1.05).fun >= bound
  assert found.weight > 4 if not unlike else found.weight < 4


def test_seeds_that_agree_to_the_example_may_not_be_without_spread():
  """A row whose seeds agree gets a larger variance than that of rounding."""
  rows = [(0.5, 0.5, 0.5), (0.51, 0.52, 0.50), (0.4, 0.41, 0.42)]
  found = statistics.spread([Sample(row, 100) for row in rows])
  variance, _ = found.variance_of(Sample(rows[0], 100))
  assert variance > (1 / 100)**2 / 12


def test_with_a_spread_seeds_are_compared_by_it():
  """With a common spread, p-values equal those computed by hand.

  A row of d + 1 seeds with variance v gets the variance (w s^2 + d v) / (w + d)
  with w + d degrees of freedom. Here s is the spread's deviation, w its weight.
  """
  common = Spread(deviation=0.01, weight=4.0, degrees=50, rows=9)
  one, four = Sample((0.53,), 10**9), Sample((0.48, 0.5, 0.5, 0.52), 10**9)
  assert common.variance_of(one) == pytest.approx((1e-4, 4))
  own = 0.0008 / 3
  of_four = (4 * 1e-4 + 3 * own) / 7
  assert common.variance_of(four) == pytest.approx((of_four, 7))
  # Satterthwaite's degrees of freedom, as in Welch's test.
  square = 1e-4, of_four / 4
  degrees = sum(square)**2 / (square[0]**2 / 4 + square[1]**2 / 7)
  assert statistics.p_values([one, four], common)[1, 0] == pytest.approx(
      2 * stats.t.sf(0.03 / math.sqrt(sum(square)), degrees), rel=1e-6)
  rule = Sample((0.47,), 100)
  assert statistics.p_value(four, rule, common) == pytest.approx(
      2 * stats.t.sf(0.03 / math.sqrt(of_four / 4), 7), rel=1e-6)
  # The degrees of freedom are at most `Spread.degrees`.
  alike = Spread(deviation=0.01, weight=1000.0, degrees=6, rows=3)
  assert statistics.p_value(one, rule, alike) == pytest.approx(
      2 * stats.t.sf(6, 6), rel=1e-6)


def _table(means, seeds, deviation, rng):
  """Draws accuracies of `seeds` seeds around each of `means`.

  Returns the samples, the highest sample mean first, and their true means.
  """
  drawn = [(tuple(rng.normal(m, deviation, seeds)), m) for m in means]
  drawn.sort(key=lambda pair: -np.mean(pair[0]))
  return [Sample(seeds, 10**6) for seeds, _ in drawn], [m for _, m in drawn]


def _ranks(samples):
  return statistics.rank(samples)[0]


@pytest.mark.full
@pytest.mark.parametrize('seeds', [3, 5])
def test_equal_mechanisms_are_rarely_told_apart(seeds):
  """At most about 5% of 200 tables of 12 equal rows show a difference."""
  rng = np.random.default_rng(seeds)
  wrong = sum(
      any(len(rank.like) < 12 for rank in _ranks(
          _table([0.5] * 12, seeds, 0.01, rng)[0])) for _ in range(200))
  # At most 10 are expected; three binomial standard deviations are 9.
  assert 1 <= wrong <= 19


def test_the_ranges_hold_the_true_ranks():
  """In 95% of tables all rank ranges hold the true ranks, and are narrow."""
  rng = np.random.default_rng(0)
  missed, width = 0, []
  for _ in range(200):
    samples, true = _table(np.linspace(0.4, 0.6, 15), 3, 0.012, rng)
    order = sorted(true, reverse=True)
    found = _ranks(samples)
    missed += any(not rank.first <= order.index(m) + 1 <= rank.last
                  for rank, m in zip(found, true, strict=True))
    width += [rank.last - rank.first + 1 for rank in found]
  assert missed <= 19  # at most 10 expected, plus three deviations
  assert np.mean(width) < 8


def test_rows_too_unlike_have_at_least_the_pooled_variance():
  """Of rows of three seeds: NumPy's variances, Satterthwaite's degrees.
  """
  rows = [(0.9, 0.901, 0.899)] * 20 + [(0.5, 0.9, 0.9)] * 3
  samples = [Sample(row, 10**9) for row in rows]
  found, squares = statistics.spread(samples), [np.var(x, ddof=1) for x in rows]
  assert found.weight == 0 and found.rows == 23
  assert found.deviation**2 == pytest.approx(np.mean(squares), rel=1e-6)
  degrees = 2 * sum(squares)**2 / sum(x**2 for x in squares)
  assert found.degrees == pytest.approx(degrees, rel=1e-6)
  assert found.variance_of(samples[0]) == pytest.approx(
      (np.mean(squares), degrees))
  assert found.variance_of(samples[-1]) == pytest.approx((squares[-1], 2))
  assert found.variance_of(Sample((0.5,), 10**9)) == found.variance_of(
      samples[0])


def _of_unlike_spreads(rng):
  return [rng.normal(0.5, d, 3) for d in 0.01 * np.exp(
      rng.normal(0, rng.choice([0.7, 1.4]), 24))]


def _that_learn_or_do_not(rng):
  return list(np.where(rng.random((24, 3)) < 0.5, 1, 0.05)
              + rng.normal(0, 0.003, (24, 3)))


def _of_two_kinds(rng):
  """Most rows have seeds alike; the others learn or do not, around their mean.
  """
  return [*rng.normal(0.5, 0.002, (16, 3)), *np.where(
      rng.random((8, 3)) < 0.5, 0.9, 0.1) + rng.normal(0, 0.003, (8, 3))]


@pytest.mark.every(3)
@pytest.mark.parametrize('drawn', [
    _of_unlike_spreads, _that_learn_or_do_not, _of_two_kinds])
def test_rows_of_unlike_spreads_are_rarely_told_apart(drawn):
  """At most about 5% of 200 tables of equal means show a difference."""
  rng, wrong = np.random.default_rng(0), 0
  for _ in range(200):
    rows = sorted(drawn(rng), key=lambda row: -row.mean())
    found = _ranks([Sample(tuple(row), 10**6) for row in rows])
    wrong += any(len(rank.like) < len(rows) for rank in found)
  # At most 10 are expected; three binomial standard deviations are 9.
  assert wrong <= 19


def test_a_row_of_one_seed_takes_its_spread_from_the_others():
  """A row of one seed differs from far rows only if other rows vary little."""
  rng = np.random.default_rng(0)
  rows = [tuple(m + 0.01 * np.array([-1, 0, 1]) * rng.uniform(0.9, 1.1))
          for m in (0.7, 0.7, 0.5, 0.5, 0.5, 0.5)]
  rows.insert(2, (0.60,))
  found = _ranks([Sample(row, 10**6) for row in rows])
  assert (found[2].first, found[2].last) == (3, 3)
  # With ten times the spread, the single seed differs from no row.
  rows = [tuple(np.mean(row) + 10 * (np.array(row) - np.mean(row)))
          for row in rows]
  found = _ranks([Sample(row, 10**6) for row in rows])
  assert (found[2].first, found[2].last) == (1, 7)


def test_ranks_are_what_pairs_leave(monkeypatch):
  """Rank ranges follow from the pairs that differ: here 1 and 2, 1 and 3."""
  apart = np.zeros((4, 4), bool)
  for i, j in ((0, 1), (0, 2)):
    apart[i, j] = apart[j, i] = True
  monkeypatch.setattr(statistics, 'apart', lambda samples, common: apart)
  monkeypatch.setattr(statistics, 'spread', lambda samples: None)
  assert _ranks([None] * 4) == [
      statistics.Rank(1, 1, 2, (1, 4)), statistics.Rank(2, 2, 4, (2, 3, 4)),
      statistics.Rank(3, 2, 4, (2, 3, 4)),
      statistics.Rank(4, 1, 4, (1, 2, 3, 4))]


def test_holm_stops_at_the_first_that_is_not_found():
  """The bounds of four tests are 5%/4 = 0.0125, 5%/3 = 0.0167, 5%/2 and 5%."""
  assert statistics.differ([0.04, 0.012, 0.017, 0.03]) == [
      False, True, False, False]
  assert statistics.differ([0.04, 0.012, 0.016, 0.025]) == [True] * 4
  assert statistics.differ([]) == []


def test_fisher_is_that_of_scipy():
  for a, b, n in ((130, 110, 200), (3, 17, 20), (0, 5, 20), (700, 640, 2000)):
    assert statistics.p_value(
        Sample((a / n,), n), Sample((b / n,), n)) == pytest.approx(
            stats.fisher_exact([[a, n - a], [b, n - b]]).pvalue)
