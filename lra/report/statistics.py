"""Intervals of accuracies, and which of several can be told apart.

One seed says nothing about other seeds: its interval is that of the test
examples alone. From two on the interval is that of the mean over seeds.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
# From so many seeds of both on, seeds are compared, else examples.
SEEDS = 3


@dataclasses.dataclass(frozen=True)
class Sample:
  """What was measured of one model on one test split.

  Attributes:
    accuracies: fractions, one of each seed; at least one.
    examples: number of test examples.
    correct: bool [examples] of the first seed, None where nobody has kept it.
  """
  accuracies: tuple[float, ...]
  examples: int
  correct: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Interval:
  """A 95% confidence interval.

  Attributes:
    low, high: fractions.
    over_seeds: whether it is that of the mean over seeds; else of one seed's
      accuracy over test examples.
  """
  low: float
  high: float
  over_seeds: bool


def interval(sample: Sample) -> Interval:
  """The interval of a mean: Student's t over seeds, Wilson's of one seed."""
  seeds = np.array(sample.accuracies)
  if len(seeds) > 1:
    half = (stats.t.ppf((1 + CONFIDENCE) / 2, len(seeds) - 1)
            * seeds.std(ddof=1) / math.sqrt(len(seeds)))
    low, high = seeds.mean() - half, seeds.mean() + half
  else:
    low, high = stats.binomtest(
        round(seeds[0] * sample.examples), sample.examples).proportion_ci(
            CONFIDENCE, method='wilson')
  return Interval(max(float(low), 0.0), min(float(high), 1.0), len(seeds) > 1)


def p_value(a: Sample, b: Sample) -> float:
  """How probable such a difference is where there is none, two-sided.

  Welch's t-test over seeds where both have `SEEDS` or more; else, of the first
  seed of each, McNemar's exact test of the examples on which they differ; or,
  where these were not kept, Fisher's exact test of the numbers of correct
  answers, which finds less.
  """
  if min(len(a.accuracies), len(b.accuracies)) >= SEEDS and (
      np.ptp(a.accuracies) or np.ptp(b.accuracies)):
    return float(stats.ttest_ind(
        a.accuracies, b.accuracies, equal_var=False).pvalue)
  if a.correct is not None and b.correct is not None and (
      a.examples == b.examples):
    only_a = int((a.correct & ~b.correct).sum())
    only_b = int((b.correct & ~a.correct).sum())
    if not only_a + only_b:
      return 1.0
    return float(stats.binomtest(only_a, only_a + only_b).pvalue)
  table = [[right, s.examples - right] for s in (a, b)
           for right in [round(s.accuracies[0] * s.examples)]]
  return float(stats.fisher_exact(table).pvalue)


def apart(samples: Sequence[Sample]) -> set[tuple[int, int]]:
  """Pairs (i, j), i < j, that differ: at 5% for all pairs together (Holm)."""
  found = sorted((p_value(samples[i], samples[j]), i, j) for i, j in
                 itertools.combinations(range(len(samples)), 2))
  different = set()
  for place, (p, i, j) in enumerate(found):
    if p > (1 - CONFIDENCE) / (len(found) - place):
      break
    different.add((i, j))
  return different


def letters(count: int, different: set[tuple[int, int]]) -> list[str]:
  """A few letters for each of `count`: two that differ have none in common.

  Those which cannot be told apart have; it is the compact display of Piepho
  2004, J. Comput. Graph. Stat. 13, 456: insert and absorb.
  """
  groups = [frozenset(range(count))]
  for i, j in sorted(different):
    split = [g for g in groups if i in g and j in g]
    parts = [g - {k} for g in split for k in (i, j)]
    kept = [g for g in groups if g not in split]
    for part in sorted(parts, key=len, reverse=True):
      if not any(part <= other for other in kept):
        kept.append(part)
    groups = kept
  groups.sort(key=lambda g: (sorted(g)))
  return [' '.join(_letter(n) for n, g in enumerate(groups) if i in g)
          for i in range(count)]


def _letter(number):
  """a, b, ..., z, aa, ab, ..."""
  text = chr(ord('a') + number % 26)
  return text if number < 26 else _letter(number // 26 - 1) + text
