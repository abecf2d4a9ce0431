"""Intervals of accuracies, and which of several can be told apart.

One seed says nothing about other seeds: its interval is that of the test
examples alone. From two on the interval is that of the mean over seeds.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import special, stats

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
  return float(p_values([a, b])[0, 1])


def p_values(samples: Sequence[Sample]) -> np.ndarray:
  """`p_value` of each two samples, float64 [N, N]; 1 on the diagonal.

  All at once: a page has tens of thousands of pairs.
  """
  p = np.ones((len(samples),) * 2)
  seeds = np.array([len(s.accuracies) for s in samples])
  welch = np.minimum.outer(seeds, seeds) >= SEEDS
  steady = np.array([not np.ptp(s.accuracies) for s in samples], bool)
  welch &= ~np.logical_and.outer(steady, steady)
  left = ~welch
  for examples in {s.examples for s in samples if s.correct is not None}:
    kept = [i for i, s in enumerate(samples)
            if s.correct is not None and s.examples == examples]
    block = np.ix_(kept, kept)
    p[block] = np.where(left[block], _mcnemar(
        np.array([samples[i].correct for i in kept])), p[block])
    left[block] = False
  p = np.where(welch, _welch(samples), p)
  for i, j in np.argwhere(np.triu(left, 1)):
    p[i, j] = p[j, i] = _fisher(*(
        (round(s.accuracies[0] * s.examples), s.examples)
        for s in (samples[i], samples[j])))
  return p


def _welch(samples):
  """Student's t by the variances of both, with Satterthwaite's degrees."""
  count = np.array([float(len(s.accuracies)) for s in samples])
  mean = np.array([np.mean(s.accuracies) for s in samples])
  square = np.array([np.var(s.accuracies, ddof=1) if len(s.accuracies) > 1
                     else 0.0 for s in samples]) / count
  both = np.add.outer(square, square)
  freedom = square**2 / np.maximum(count - 1, 1)
  with np.errstate(divide='ignore', invalid='ignore'):
    t = np.subtract.outer(mean, mean) / np.sqrt(both)
    degrees = both**2 / np.add.outer(freedom, freedom)
  return 2 * special.stdtr(degrees, -np.abs(t))


def _mcnemar(correct_NxE):
  """Binomial test of the examples which one of two has right, at 1/2."""
  right = correct_NxE.astype(np.float32)  # counts are exact up to 2**24
  only = np.rint(right @ (1 - right).T)
  of_both = only + only.T
  p = 2 * special.bdtr(np.minimum(only, only.T), of_both.astype(int), 0.5)
  return np.where(of_both > 0, np.minimum(p, 1.0), 1.0)


@functools.cache
def _fisher(a, b):
  """Of two (correct, examples)."""
  return float(stats.fisher_exact(
      [[right, examples - right] for right, examples in (a, b)]).pvalue)


def p_value_of_rule(sample: Sample, rule: Sample) -> float:
  """How probable such a difference from a rule is where there is none.

  A rule has no seeds: Student's t-test of those of the sample if it has
  `SEEDS` or more, else `p_value`.
  """
  if len(sample.accuracies) >= SEEDS and np.ptp(sample.accuracies):
    return float(stats.ttest_1samp(
        sample.accuracies, rule.accuracies[0]).pvalue)
  return p_value(sample, rule)


def differ(p: Sequence[float]) -> list[bool]:
  """Which of several tests find a difference: at 5% for all together (Holm)."""
  order = np.argsort(p, kind='stable')
  bounds = (1 - CONFIDENCE) / (len(order) - np.arange(len(order)))
  found = np.zeros(len(order), bool)
  found[order] = np.logical_and.accumulate(np.asarray(p)[order] <= bounds)
  return found.tolist()


def apart(samples: Sequence[Sample]) -> set[tuple[int, int]]:
  """Pairs (i, j), i < j, that differ, at 5% for all pairs together."""
  p = p_values(samples)
  pairs = list(itertools.combinations(range(len(samples)), 2))
  found = differ([p[pair] for pair in pairs])
  return {pair for pair, is_one in zip(pairs, found, strict=True) if is_one}


def difference(a: Sample, b: Sample) -> tuple[float, float]:
  """The 95% interval of the difference of two means, a's minus b's.

  From the interval of each (Newcombe 1998, Statistics in Medicine 17, 873,
  method 10, which is that of Wilson's intervals).
  """
  of_a, of_b = interval(a), interval(b)
  mean_a, mean_b = np.mean(a.accuracies), np.mean(b.accuracies)
  below = math.hypot(mean_a - of_a.low, of_b.high - mean_b)
  above = math.hypot(of_a.high - mean_a, mean_b - of_b.low)
  return (float(mean_a - mean_b - below), float(mean_a - mean_b + above))


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
