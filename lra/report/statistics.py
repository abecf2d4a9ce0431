"""Intervals of accuracies.

One seed says nothing about other seeds: its interval is that of the test
examples alone. From two on the interval is that of the mean over seeds, unless
all have the same accuracy: that is no sign that others have it too.
"""

import dataclasses
import math

import numpy as np
import scipy

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Sample:
  """What was measured of one model on one test split.

  Attributes:
    accuracies: fractions, one of each seed; at least one.
    examples: number of test examples, which are independent of each other.
    correct: bool [seeds, examples], None where one seed's are not kept.
  """
  accuracies: tuple[float, ...]
  examples: int
  correct: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Interval:
  """A 95% confidence interval.

  Attributes:
    low, high: fractions.
    over_seeds: whether it is that of the mean over seeds; else of one accuracy
      over test examples, that of a seed or of all seeds.
  """
  low: float
  high: float
  over_seeds: bool


def deviation(sample: Sample) -> float | None:
  """Standard deviation of the accuracies of seeds, a fraction.

  That of a sample: squares are divided by one less than there are seeds. None
  of a single seed.
  """
  seeds = sample.accuracies
  return float(np.std(seeds, ddof=1)) if len(seeds) > 1 else None


def interval(sample: Sample) -> Interval:
  """The interval of a mean: Student's t over seeds, else Wilson's."""
  seeds = np.array(sample.accuracies)
  if (seeds != seeds[0]).any():
    half = (scipy.special.stdtrit(len(seeds) - 1, (1 + CONFIDENCE) / 2)
            * seeds.std(ddof=1) / math.sqrt(len(seeds)))
    low, high = seeds.mean() - half, seeds.mean() + half
    return Interval(max(float(low), 0.0), min(float(high), 1.0), True)
  return _wilson(seeds[0], sample.examples)


def difference(a: Sample, b: Sample) -> tuple[float, float]:
  """The 95% interval of the difference of two means, a's minus b's.

  Of samples that were tested on different examples. From the interval of each
  (Newcombe 1998, Statistics in Medicine 17, 873, method 10, which is that of
  Wilson's intervals).
  """
  of_a, of_b = _on_other_examples(a), _on_other_examples(b)
  mean_a, mean_b = np.mean(a.accuracies), np.mean(b.accuracies)
  below = math.hypot(mean_a - of_a.low, of_b.high - mean_b)
  above = math.hypot(of_a.high - mean_a, mean_b - of_b.low)
  return (float(mean_a - mean_b - below), float(mean_a - mean_b + above))


def _on_other_examples(sample):
  """The interval of a mean, were its seeds and its examples others."""
  over_seeds, mean = interval(sample), float(np.mean(sample.accuracies))
  if not over_seeds.over_seeds:
    return over_seeds
  # What all seeds have in common does not grow less with their number.
  examples = _wilson(mean, sample.examples)
  return Interval(mean - math.hypot(mean - over_seeds.low, mean - examples.low),
                  mean + math.hypot(over_seeds.high - mean,
                                    examples.high - mean), True)


def _wilson(accuracy, examples):
  # scipy.stats.binomtest has the same, and takes milliseconds for a test
  # that nobody asks for.
  right = round(accuracy * examples)
  z = scipy.special.ndtri((1 + CONFIDENCE) / 2)
  centre = right + z**2 / 2
  half = z * math.sqrt(right * (examples - right) / examples + z**2 / 4)
  low, high = ((centre + s * half) / (examples + z**2) for s in (-1, 1))
  return Interval(float(low) if right else 0.0,
                  float(high) if right < examples else 1.0, False)
