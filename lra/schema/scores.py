"""Scores of a run on one split of its data."""

from typing import Annotated

import numpy as np
import pydantic
from pydantic import Field

from lra.core import bits
from lra.schema.record import MOST, Count, Fraction, Record, Text, field

Loss = Annotated[float, Field(ge=0, le=1e300)]
CLASSIFICATION = 'classification'
# Objectives with scores of classes.
CLASSIFIERS = (CLASSIFICATION, 'token_classification')


class Scores(Record):
  """Scores of one split: numbers by name, for any objective."""
  __pydantic_extra__: dict[str, float]
  loss: float = field('Mean over the examples.')


class Part(Record):
  """The examples of one kind: their number, and the accuracy on them."""
  examples: Count
  accuracy: Fraction


# Property of the examples -> its value -> the examples with this value.
Parts = Annotated[dict[Text, Annotated[
    dict[Text, Part], Field(max_length=MOST)]], Field(max_length=MOST)]


class ClassificationScores(Scores):
  """Scores of a classifier on one split; most are means over the classes."""
  loss: Loss = field('Mean cross entropy, in nats.')
  accuracy: Fraction
  precision: Fraction
  recall: Fraction
  f1: Fraction
  confusion: list[list[Count]] = field(
      '[C, C], number of examples of each true class (rows) with each '
      'predicted class (columns); [] for more than '
      '`lra.core.tasks.MOST_CLASSES`.', [])
  counted: Count = field(
      'Number of scored examples; only without a confusion.', 0)
  parts: Parts = field('Only for the test split of some tasks.', {})
  agreement: dict[Text, Fraction] = field(
      'Name of a simple rule -> share of the examples on which it gives the '
      'same class, right or wrong.', {}, max_length=MOST)
  correct: str = field(
      'Whether the class of each example is right, in the order of the '
      'prepared '
      "data, see `lra.core.bits`; '' if it was not kept.", '')

  @property
  def examples(self) -> int:
    return sum(map(sum, self.confusion)) if self.confusion else self.counted

  @pydantic.model_validator(mode='after')
  def _accuracy_is_that_of_the_confusion(self):
    counts, size = self.confusion, self.examples
    if any(len(row) != len(counts) for row in counts):
      raise ValueError("'confusion' is not square")
    if not size:
      raise ValueError("'confusion' counts no example")
    hits = sum(counts[i][i] for i in range(len(counts))) if counts else round(
        self.accuracy * size)
    if not counts and abs(self.accuracy * size - hits) > 1e-6 * size:
      raise ValueError(f"'accuracy' is {self.accuracy:.6f}, but no number of "
                       f"the {size} examples in 'counted' gives it")
    if abs(hits / size - self.accuracy) > 1e-6:
      raise ValueError(f"'confusion' gives accuracy {hits / size:.6f} but "
                       f"'accuracy' is {self.accuracy:.6f}")
    if self.correct and bits.unpack(self.correct, size).sum() != hits:
      raise ValueError(f"'correct' does not hold {hits} correct answers")
    for name, value in _means_over_classes(counts).items() if counts else ():
      if abs(value - getattr(self, name)) > 1e-6:
        raise ValueError(f"'confusion' gives {name} {value:.6f} but '{name}' "
                         f'is {getattr(self, name):.6f}')
    return self


class LongerScores(Record):
  """Scores on generated sequences of a length, or of a range of lengths."""
  examples: Annotated[int, Field(ge=1, le=10**9)]
  accuracy: Fraction = field('Over all questions of the sequences.')
  loss: Loss = field('Mean cross entropy, in nats.')


def _means_over_classes(confusion):
  """Returns macro precision, recall and F1; 0 for a class with divisor 0."""
  counts = np.array(confusion, np.float64)
  hits = np.diag(counts)
  predicted, true = counts.sum(0), counts.sum(1)
  scores = {'precision': hits / np.maximum(predicted, 1),
            'recall': hits / np.maximum(true, 1),
            'f1': 2 * hits / np.maximum(predicted + true, 1)}
  return {name: float(score.mean()) for name, score in scores.items()}
