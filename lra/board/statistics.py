"""Statistics of rows: intervals of accuracies, tests of pairs, ranks.

From two seeds on, an interval is that of the mean over seeds. With one seed, or
if all seeds have the same accuracy, it covers test examples: other seeds may
differ.

If there are enough seeds, a pair of rows is compared by the moderated t-test
over seeds of limma (Smyth 2004) with a conservative prior. A table has many
more pairs of rows than a row has seeds, so rows share an estimate of their
variance. If the variances are too unlike, no row gets less than the pooled one:
where seeds learn a task or do not, equal seeds may be chance. If there are too
few seeds, McNemar's exact test on test examples is used. Holm's correction is
over all pairs.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy  # imports scipy.stats, which takes half a second, at its first use

CONFIDENCE = 0.95
# The fewest degrees of freedom. With three, a significant difference
# among the pairs of fifty rows must be 38 standard errors wide.
_DEGREES = 4
_POWER = 0.8  # probability to find a true difference
_MOST_SEEDS = 1000
# Grid of weights and variances to search for the likeliest.
_WEIGHTS = np.geomspace(0.5, 1000, 200)
_SCALES = np.geomspace(1e-3, 10, 400)


class Sample(NamedTuple):
  """The scores of one model on one test split, one accuracy of each seed.

  The `examples` are the number of independent ones. `correct` is a bool [seeds,
  examples], None if the answers are not kept.
  """
  accuracies: tuple[float, ...]
  examples: int
  correct: np.ndarray | None = None


class Interval(NamedTuple):
  """A 95% confidence interval of fractions, over seeds or test examples."""
  low: float
  high: float
  over_seeds: bool


def deviation(sample: Sample) -> float | None:
  """Returns the standard deviation over seeds (ddof 1); None for one seed."""
  return float(np.std(sample.accuracies, ddof=1)) if (
      len(sample.accuracies) > 1) else None


def interval(sample: Sample) -> Interval:
  """Returns the interval of a mean: Student's t over seeds, or Wilson's."""
  seeds = np.array(sample.accuracies)
  if (seeds != seeds[0]).any():
    half = (scipy.special.stdtrit(len(seeds) - 1, (1 + CONFIDENCE) / 2)
            * seeds.std(ddof=1) / math.sqrt(len(seeds)))
    low, high = seeds.mean() - half, seeds.mean() + half
    return Interval(max(float(low), 0.0), min(float(high), 1.0), True)
  return _wilson(seeds[0], sample.examples)


def difference(a: Sample, b: Sample) -> tuple[float, float]:
  """Returns the 95% interval of the difference of two means, a's minus b's.

  The samples were tested on different examples, so the interval follows from
  those of each (Newcombe 1998, Statistics in Medicine 17, 873, method 10).
  """
  of_a, of_b = _on_other_examples(a), _on_other_examples(b)
  mean_a, mean_b = np.mean(a.accuracies), np.mean(b.accuracies)
  below = math.hypot(mean_a - of_a.low, of_b.high - mean_b)
  above = math.hypot(of_a.high - mean_a, mean_b - of_b.low)
  return (float(mean_a - mean_b - below), float(mean_a - mean_b + above))


def _on_other_examples(sample):
  """Returns the interval of a mean over both seeds and examples."""
  over_seeds, mean = interval(sample), float(np.mean(sample.accuracies))
  if not over_seeds.over_seeds:
    return over_seeds
  # More seeds do not reduce the effect of their common test examples.
  examples = _wilson(mean, sample.examples)
  return Interval(mean - math.hypot(mean - over_seeds.low, mean - examples.low),
                  mean + math.hypot(over_seeds.high - mean,
                                    examples.high - mean), True)


@functools.cache
def _wilson(accuracy, examples):
  found = scipy.stats.binomtest(
      round(accuracy * examples), examples).proportion_ci(CONFIDENCE, 'wilson')
  return Interval(float(found.low), float(found.high), False)


class Spread(NamedTuple):
  """The prior distribution of the variance over seeds of a table's rows.

  Source: Smyth 2004, Statistical Applications in Genetics and Molecular Biology
  3, 3. A row's inverse variance is chi-squared with `weight` degrees of freedom
  over `weight` times the square of `deviation`, a fraction. So the seeds of all
  rows count like `weight` more seeds of its own. The weight is the lowest that
  the variances of the rows allow (95%, one-sided, by profile likelihood), so
  that rows with a larger spread are not underestimated. `degrees` is the number
  of seeds minus that of `rows` with several seeds.

  With the weight 0 the variances are too unlike for a prior. Then `deviation`
  is the pooled one, with Satterthwaite's `degrees`, and the least of any row.
  """
  deviation: float
  weight: float
  degrees: float
  rows: int

  def variance_of(self, sample: Sample) -> tuple[float, float]:
    """Returns the variance of a sample's seeds, and its degrees of freedom."""
    own = len(sample.accuracies) - 1
    squares = own * _variance(sample) if own else 0.0
    if not self.weight:
      larger = squares > own * self.deviation**2
      return (squares / own, min(own, self.degrees)) if larger else (
          self.deviation**2, self.degrees)
    variance = (self.weight * self.deviation**2 + squares) / (self.weight + own)
    return variance, min(self.weight + own, self.degrees)


def spread(samples: Sequence[Sample]) -> Spread | None:
  """Returns the spread of seeds within rows; None if it cannot be estimated.

  Half of the rows, and at least two, need several seeds, with four degrees of
  freedom in all. A prior needs four of one row with the likeliest weight.
  """
  several = [s for s in samples if len(s.accuracies) > 1]
  degrees = np.array([len(s.accuracies) - 1 for s in several])
  enough = max(2, len(samples) / 2)
  if len(several) < enough or degrees.sum() < _DEGREES or not any(
      np.ptp(s.accuracies) for s in several):
    return None
  squares = np.array([_variance(s) for s in several])
  weight, scale, likeliest = _prior(squares, degrees)
  if likeliest + degrees.mean() < _DEGREES:
    pooled = degrees @ squares / degrees.sum()
    return Spread(math.sqrt(pooled), 0.0, (degrees @ squares)**2 / (
        degrees @ squares**2), len(several))
  return Spread(float(np.sqrt(scale)), float(weight), int(degrees.sum()),
                len(several))


def pooled(samples: Sequence[Sample]) -> float | None:
  """Returns the root mean square deviation of seeds, None without two seeds."""
  several = [s for s in samples if len(s.accuracies) > 1]
  return math.sqrt(np.average(
      [_variance(s) for s in several],
      weights=[len(s.accuracies) - 1 for s in several])) if several else None


def _variance(sample):
  """Returns the variance of seeds plus that of rounding to whole examples."""
  return float(np.var(sample.accuracies, ddof=1)) + sample.examples**-2 / 12


def _prior(squares, degrees):
  """Returns a lower bound of the weight, its variance, the likeliest weight.

  Each square over the variance is F-distributed by its degrees and the weight.
  """
  scales = _SCALES * np.average(squares, weights=degrees)
  w, log = _WEIGHTS[:, None], np.zeros((len(_WEIGHTS), len(scales)))
  for square, d in zip(squares, degrees, strict=True):  # a loop saves memory
    ratio = square / scales
    log += (scipy.special.xlogy(d / 2, d / w)
            - scipy.special.betaln(d / 2, w / 2)
            + (d / 2 - 1) * np.log(ratio) - np.log(scales)
            - (d + w) / 2 * np.log1p(d * ratio / w))
  likely = log.max(1)
  bound = scipy.special.chdtri(1, 0.1) / 2
  first = np.flatnonzero(likely >= likely.max() - bound)[0]
  return _WEIGHTS[first], scales[log[first].argmax()], _WEIGHTS[likely.argmax()]


def p_values(samples: Sequence[Sample], common: Spread | None) -> np.ndarray:
  """Returns the two-sided p-value of each pair, float64 [N, N], 1 for itself.

  With a common spread the test is Student's t-test of the means over seeds,
  even of one seed, with Satterthwaite's degrees of freedom. Otherwise it is
  McNemar's exact test of two seeds, or Fisher's of the numbers of right answers
  if these were not kept. The pair of seeds that differs least counts, and p = 1
  if pairs of seeds disagree on the better sample.

  All pairs are computed at once: a page has tens of thousands.
  """
  if common:
    return _student(samples, common)
  p = np.ones((len(samples),) * 2)
  left = ~np.eye(len(samples), dtype=bool)
  for examples in {s.examples for s in samples if s.correct is not None}:
    kept = [i for i, s in enumerate(samples)
            if s.correct is not None and s.examples == examples]
    block = np.ix_(kept, kept)
    p[block] = _mcnemar([samples[i].correct for i in kept])
    left[block] = False
  for i, j in np.argwhere(np.triu(left, 1)):
    p[i, j] = p[j, i] = _fisher_of_nearest(samples[i], samples[j])
  return p


def _student(samples, common):
  mean = np.array([np.mean(s.accuracies) for s in samples])
  variance, degrees = np.transpose([common.variance_of(s) for s in samples])
  square = variance / [len(s.accuracies) for s in samples]
  both, freedom = np.add.outer(square, square), square**2 / degrees
  t = np.subtract.outer(mean, mean) / np.sqrt(both)
  return 2 * scipy.special.stdtr(np.minimum(
      both**2 / np.add.outer(freedom, freedom), common.degrees), -np.abs(t))


def _mcnemar(correct):
  """Tests the examples that only one of two seeds has right, at 1/2: [N, N]."""
  ends = np.cumsum([len(answers) for answers in correct])
  starts = [0, *ends[:-1]]
  right = np.concatenate(correct).astype(np.float32)  # products are exact
  total = right.sum(-1)
  p = np.ones((len(correct),) * 2)

  def over_seeds(reduce, x):
    return reduce.reduceat(reduce.reduce(x, axis=0), starts)
  for row, own in enumerate(map(slice, starts, ends)):  # a loop saves memory
    both = right[own] @ right.T
    only, other = total[own, None] - both, total - both
    better = np.sign(only - other)
    agreed = over_seeds(np.minimum, better) == over_seeds(np.maximum, better)
    found = np.minimum(1.0, 2 * scipy.special.bdtr(
        np.minimum(only, other).astype(float),
        (only + other).astype(np.int64), 0.5))
    p[row] = np.where(agreed, over_seeds(np.maximum, found), 1.0)
  np.fill_diagonal(p, 1.0)
  return p


def _fisher_of_nearest(a, b):
  if min(a.accuracies) < min(b.accuracies):
    a, b = b, a
  least, most = min(a.accuracies), max(b.accuracies)
  if least <= most:
    return 1.0
  return _fisher(round(least * a.examples), a.examples,
                 round(most * b.examples), b.examples)


@functools.cache
def _fisher(right_a, of_a, right_b, of_b):
  # scipy.stats.fisher_exact takes milliseconds, and a page has many pairs.
  right = right_a + right_b
  k = np.arange(max(0, right - of_b), min(right, of_a) + 1)
  log = -sum(scipy.special.gammaln(x + 1) for x in (
      k, of_a - k, right - k, of_b - right + k))
  p = np.exp(log - log.max())
  # Sums tables that are at most as probable as this one, despite rounding.
  return float(p[p <= p[right_a - k[0]] * (1 + 1e-7)].sum() / p.sum())


def p_value(sample: Sample, rule: Sample,
            common: Spread | None = None) -> float:
  """Returns the p-value that a sample differs from a rule without seeds."""
  if not common:
    return float(p_values([sample, rule], None)[0, 1])
  variance, degrees = common.variance_of(sample)
  t = (np.mean(sample.accuracies) - rule.accuracies[0]) / np.sqrt(
      variance / len(sample.accuracies))
  return float(2 * scipy.special.stdtr(degrees, -abs(t)))


class Rank(NamedTuple):
  """The rank of a row in its table.

  Its `place` by mean accuracy begins at 1. Its rank is in a range, from `first`
  to `last`: below the rows that are significantly better, above those that are
  significantly worse. `like` are the places of all others, and its own.
  """
  place: int
  first: int
  last: int
  like: tuple[int, ...]


def rank(samples: Sequence[Sample]) -> tuple[list[Rank], Spread | None]:
  """Ranks samples in order, the highest mean first; also returns the spread."""
  common = spread(samples)
  like = ~apart(samples, common)
  places = np.arange(1, len(samples) + 1)
  return [Rank(i + 1, 1 + int((~row[:i]).sum()),
               len(samples) - int((~row[i:]).sum()),
               tuple(places[row].tolist()))
          for i, row in enumerate(like)], common


def apart(samples: Sequence[Sample], common: Spread | None) -> np.ndarray:
  """Returns which pairs differ, by Holm's method: bool [N, N]."""
  upper = np.triu_indices(len(samples), 1)
  p = p_values(samples, common)
  found = np.zeros(p.shape, bool)
  found[upper] = differ(p[upper])
  return found | found.T


def differ(p: Sequence[float]) -> list[bool]:
  """Returns which tests find a difference, by Holm's method.

  The probability of any false difference is at most 5%.
  """
  order = np.argsort(p, kind='stable')
  bounds = (1 - CONFIDENCE) / (len(order) - np.arange(len(order)))
  found = np.zeros(len(order), bool)
  found[order] = np.logical_and.accumulate(np.asarray(p)[order] <= bounds)
  return found.tolist()


def seeds_needed(deviation: float, difference: float, comparisons: int,
                 weight: float) -> int:
  """Returns the seeds of two rows that make a true difference significant.

  With probability 0.8, at the first step of Holm's correction for these
  comparisons. The power is that of Student's test with 2 (seeds - 1 + weight)
  degrees of freedom, see `Spread.weight`.
  """
  tail = (1 - CONFIDENCE) / comparisons / 2
  z = scipy.special.ndtri(1 - tail) + scipy.special.ndtri(_POWER)
  seeds = max(2, int(np.ceil(2 * (z * deviation / difference) ** 2)))
  while True:  # from the normal approximation, which is a lower bound
    degrees = 2 * (seeds - 1 + weight)
    missed = scipy.special.nctdtr(
        degrees, difference / max(deviation, 1e-9) * math.sqrt(seeds / 2),
        scipy.special.stdtrit(degrees, 1 - tail))
    if not missed > 1 - _POWER:  # NaN for a very large difference
      return seeds
    seeds += 1


def more_seeds(a: Sample, b: Sample, common: Spread | None, comparisons: int
               ) -> int | None:
  """Returns the seeds to add to both rows if their difference is the true one.

  See `seeds_needed`. None if the spread is unknown, or for more than 1,000.
  """
  difference = abs(np.mean(a.accuracies) - np.mean(b.accuracies))
  if common is None or difference < 1e-6:
    return None
  variance = np.mean([common.variance_of(x)[0] for x in (a, b)])
  more = seeds_needed(
      variance**0.5, difference, comparisons, common.weight) - min(
          len(a.accuracies), len(b.accuracies))
  return max(more, 1) if more <= _MOST_SEEDS else None
