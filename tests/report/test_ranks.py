"""Which rows are told apart, and the ranks that leaves each."""

import numpy as np
import pytest

from lra.report import pairs, ranks
from lra.report.statistics import Sample


def test_many_pairs_need_more_evidence():
  """A pair at p = 0.04 differs alone, and not as one of three pairs."""
  def sample(wins, losses):
    first = np.array([True] * wins + [False] * losses)
    return Sample((first.mean(),), len(first), first[None])
  a, b = sample(14, 4), sample(0, 18)
  b = Sample(b.accuracies, b.examples, ~a.correct)
  assert 0.01 < pairs.p_value(a, b) < 0.05
  assert ranks.apart([a, b], None).tolist() == [[False, True], [True, False]]
  assert not ranks.apart([a, b, a], None).any()


def _table(means, seeds, deviation, rng):
  """Samples of drawn seeds, the highest mean first, and their true means."""
  drawn = [(tuple(rng.normal(m, deviation, seeds)), m) for m in means]
  drawn.sort(key=lambda pair: -np.mean(pair[0]))
  return [Sample(seeds, 10**6) for seeds, _ in drawn], [m for _, m in drawn]


def _ranks(samples):
  return ranks.of_table(samples)[0]


@pytest.mark.parametrize('seeds', [3, 5])
def test_equal_mechanisms_are_rarely_told_apart(seeds):
  """In 400 tables of 12 equal rows: 5% of them, and some, but no more."""
  rng = np.random.default_rng(seeds)
  wrong = sum(
      any(len(rank.like) < 12 for rank in _ranks(
          _table([0.5] * 12, seeds, 0.01, rng)[0])) for _ in range(400))
  # 20 are expected at most; three deviations of the binomial are 13.
  assert 3 <= wrong <= 33


def test_the_ranges_hold_the_true_ranks():
  """All of a table in 95% of tables, and they are not empty words."""
  rng = np.random.default_rng(0)
  missed, width = 0, []
  for _ in range(200):
    samples, true = _table(np.linspace(0.4, 0.6, 15), 3, 0.012, rng)
    order = sorted(true, reverse=True)
    found = _ranks(samples)
    missed += any(not rank.first <= order.index(m) + 1 <= rank.last
                  for rank, m in zip(found, true, strict=True))
    width += [rank.last - rank.first + 1 for rank in found]
  assert missed <= 19  # 10 expected at most, and three deviations
  assert np.mean(width) < 8


@pytest.mark.parametrize('factor, of_mechanisms', [(2, (100, 200)),
                                                   (4, (0, 40))])
def test_rows_that_spread_unlike_are_rarely_told_apart(factor, of_mechanisms):
  """Deviations a factor up or down: no row lends its calm to another.

  In 200 tables of 12 equal rows, of those whose ranks are of mechanisms; with
  one deviation for all it is a quarter. Where rows are too unlike ranks are
  of networks, and say so.
  """
  rng = np.random.default_rng(0)
  wrong = told = 0
  for _ in range(200):
    deviations = 0.01 * np.exp(rng.normal(0, np.log(factor), 12))
    rows = [rng.normal(0.5, d, 3) for d in deviations]
    rows.sort(key=lambda row: -row.mean())
    found, common = ranks.of_table([Sample(tuple(row), 10**6) for row in rows])
    told += common is not None
    wrong += common is not None and any(len(rank.like) < 12 for rank in found)
  # 5% of them, and three deviations of the binomial.
  assert wrong <= 0.05 * told + 3 * np.sqrt(0.05 * 0.95 * told)
  least, most = of_mechanisms
  assert least <= told <= most


def test_a_row_of_one_seed_takes_its_spread_from_the_others():
  """It is told from what is far, by no more than its one draw is worth."""
  rng = np.random.default_rng(0)
  rows = [tuple(m + 0.01 * np.array([-1, 0, 1]) * rng.uniform(0.9, 1.1))
          for m in (0.7, 0.7, 0.5, 0.5, 0.5, 0.5)]
  rows.insert(2, (0.60,))
  found = _ranks([Sample(row, 10**6) for row in rows])
  assert (found[2].first, found[2].last) == (3, 3)
  # Ten times as far apart, one draw is told from nothing.
  rows = [tuple(np.mean(row) + 10 * (np.array(row) - np.mean(row)))
          for row in rows]
  found = _ranks([Sample(row, 10**6) for row in rows])
  assert (found[2].first, found[2].last) == (1, 7)


def test_ranks_are_what_pairs_leave(monkeypatch):
  """Places 1 and 2 differ, and 3 only from 1."""
  apart = np.zeros((4, 4), bool)
  for i, j in ((0, 1), (0, 2)):
    apart[i, j] = apart[j, i] = True
  monkeypatch.setattr(ranks, 'apart', lambda samples, common: apart)
  monkeypatch.setattr(pairs, 'spread', lambda samples: None)
  assert _ranks([None] * 4) == [
      ranks.Rank(1, 1, 2, (1, 4)), ranks.Rank(2, 2, 4, (2, 3, 4)),
      ranks.Rank(3, 2, 4, (2, 3, 4)), ranks.Rank(4, 1, 4, (1, 2, 3, 4))]


def test_holm_stops_at_the_first_that_is_not_found():
  """Of four: 5%/4 = 0.0125, 5%/3 = 0.0167, 5%/2, 5%."""
  assert ranks.differ([0.04, 0.012, 0.017, 0.03]) == [
      False, True, False, False]
  assert ranks.differ([0.04, 0.012, 0.016, 0.025]) == [True] * 4
  assert ranks.differ([]) == []
