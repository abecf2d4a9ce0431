"""How probable differences of accuracies are where there is none.

A table has many more pairs of rows than a row has seeds. Three seeds alone say
little of how far others would be, so all rows of a table say it together.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import scipy

from lra.report.statistics import Sample

# From so many seeds of both on, Welch's test compares seeds.
SEEDS = 3
# Fewer degrees of freedom say too little of a spread.
_DEGREES = 4
# Rows spread alike until a test finds so improbable a difference.
_ALIKE = 0.01


@dataclasses.dataclass(frozen=True)
class Spread:
  """How far seeds of one row are apart, of all rows of a table together.

  Attributes:
    deviation: the pooled standard deviation, a fraction.
    degrees: its degrees of freedom: the seeds minus the rows.
    rows: how many rows have several seeds.
  """
  deviation: float
  degrees: int
  rows: int


def spread(samples: Sequence[Sample]) -> Spread | None:
  """The pooled standard deviation of seeds within rows.

  Returns:
    None where seeds say too little: fewer than two rows with several, fewer
    than four degrees of freedom, no spread at all, or rows that do not spread
    alike (Bartlett's test, at 1%).
  """
  several = [s for s in samples if len(s.accuracies) > 1]
  degrees = np.array([len(s.accuracies) - 1 for s in several])
  if len(several) < 2 or degrees.sum() < _DEGREES:
    return None
  squares = np.array([np.var(s.accuracies, ddof=1) for s in several])
  pooled = np.average(squares, weights=degrees)
  if not pooled > 0:
    return None
  # Seeds agree at best to what rounding to whole examples hides.
  hidden = np.array([1 / s.examples for s in several])**2 / 12
  if _bartlett(squares + hidden, degrees) < _ALIKE:
    return None
  return Spread(float(np.sqrt(pooled)), int(degrees.sum()), len(several))


def _bartlett(squares, degrees):
  """How probable variances as different are where all are equal.

  Bartlett 1937, Proc. R. Soc. A 160, 268.
  """
  total, groups = degrees.sum(), len(squares)
  pooled = np.average(squares, weights=degrees)
  found = total * np.log(pooled) - (degrees * np.log(squares)).sum()
  correction = 1 + ((1 / degrees).sum() - 1 / total) / (3 * (groups - 1))
  return scipy.stats.chi2.sf(found / correction, groups - 1)


def p_value(a: Sample, b: Sample) -> float:
  """Of two samples alone, as `p_values` of samples without a common spread."""
  return float(p_values([a, b], None)[0, 1])


def p_values(samples: Sequence[Sample], common: Spread | None) -> np.ndarray:
  """How probable the difference of each two is where there is none, two-sided.

  With a common spread Student's t-test of the means over seeds, of which one
  may be all that a sample has. Else Welch's, where both have `SEEDS` or more;
  or else, of the first seed of each, McNemar's exact test of the examples on
  which they differ; or, where these were not kept, Fisher's exact test of the
  numbers of correct answers, which finds less.

  All at once: a page has tens of thousands of pairs.

  Returns:
    float64 [N, N]; 1 on the diagonal.
  """
  if common:
    return _student(samples, common)
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


def _student(samples, common):
  """Student's t with one standard deviation for all."""
  mean = np.array([np.mean(s.accuracies) for s in samples])
  share = np.array([1 / len(s.accuracies) for s in samples])
  t = np.subtract.outer(mean, mean) / (
      common.deviation * np.sqrt(np.add.outer(share, share)))
  return 2 * scipy.special.stdtr(common.degrees, -np.abs(t))


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
  return 2 * scipy.special.stdtr(degrees, -np.abs(t))


def _mcnemar(correct_NxE):
  """Binomial test of the examples which one of two has right, at 1/2."""
  right = correct_NxE.astype(np.float32)  # counts are exact up to 2**24
  only = np.rint(right @ (1 - right).T)
  of_both = only + only.T
  p = 2 * scipy.special.bdtr(np.minimum(only, only.T), of_both.astype(int), 0.5)
  return np.where(of_both > 0, np.minimum(p, 1.0), 1.0)


@functools.cache
def _fisher(a, b):
  """Of two (correct, examples)."""
  return float(scipy.stats.fisher_exact(
      [[right, examples - right] for right, examples in (a, b)]).pvalue)


def p_value_of_rule(sample: Sample, rule: Sample,
                    common: Spread | None = None) -> float:
  """How probable such a difference from a rule is where there is none.

  A rule has no seeds: Student's t-test of those of the sample, with the common
  spread, or with their own if there are `SEEDS` or more; else `p_value`.
  """
  seeds = len(sample.accuracies)
  if common:
    t = (np.mean(sample.accuracies) - rule.accuracies[0]) / (
        common.deviation / np.sqrt(seeds))
    return float(2 * scipy.special.stdtr(common.degrees, -abs(t)))
  if seeds >= SEEDS and np.ptp(sample.accuracies):
    return float(scipy.stats.ttest_1samp(
        sample.accuracies, rule.accuracies[0]).pvalue)
  return p_value(sample, rule)
