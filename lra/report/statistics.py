"""Computes intervals of accuracies.

One seed shows nothing about other seeds: its interval covers test examples
only. From two seeds on, the interval is that of the mean over seeds. If all
have one accuracy, it covers test examples again, since other seeds may differ.
"""

import dataclasses
import math

import numpy as np
import scipy

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Sample:
  """The scores of one model on one test split.

  Attributes:
    accuracies: fractions, one of each seed; at least one.
    examples: number of test examples, which are independent of each other.
    correct: bool [seeds, examples]; None if those of a seed are not kept.
  """
  accuracies: tuple[float, ...]
  examples: int
  correct: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Interval:
  """A 95% confidence interval.

  Attributes:
    low, high: fractions.
    over_seeds: whether it is that of the mean over seeds. Otherwise it is over
      test examples, for the accuracy of one seed or of all seeds.
  """
  low: float
  high: float
  over_seeds: bool


def deviation(sample: Sample) -> float | None:
  """Returns the standard deviation of the accuracies of seeds, a fraction.

  The sum of squares is divided by the seeds minus one. None for a single seed.
  """
  seeds = sample.accuracies
  return float(np.std(seeds, ddof=1)) if len(seeds) > 1 else None


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

  The samples were tested on different examples. The interval follows from that
  of each (Newcombe 1998, Statistics in Medicine 17, 873, method 10, for
  Wilson's intervals).
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


def _wilson(accuracy, examples):
  # scipy.stats.binomtest has the same, but spends milliseconds on a test.
  right = round(accuracy * examples)
  z = scipy.special.ndtri((1 + CONFIDENCE) / 2)
  centre = right + z**2 / 2
  half = z * math.sqrt(right * (examples - right) / examples + z**2 / 4)
  low, high = ((centre + s * half) / (examples + z**2) for s in (-1, 1))
  return Interval(float(low) if right else 0.0,
                  float(high) if right < examples else 1.0, False)
