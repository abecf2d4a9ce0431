"""Scores of a run on one split of its data."""

from typing import Annotated

import numpy as np
import pydantic
from pydantic import Field

from lra.core import bits
from lra.schema.record import MOST, Count, Fraction, Record, Text

CLASSIFICATION = 'classification'
# Objectives with scores of classes.
CLASSIFIERS = (CLASSIFICATION, 'token_classification')


class Scores(Record):
  """Scores of one split: numbers by name, for any objective.

  Attributes:
    loss: mean over the examples.
  """
  __pydantic_extra__: dict[str, float]
  loss: float


class Part(Record):
  """The examples of one kind: their number, and the accuracy on them."""
  examples: Count
  accuracy: Fraction


# Property of the examples -> its value -> the examples with this value.
Parts = Annotated[dict[Text, Annotated[
    dict[Text, Part], Field(max_length=MOST)]], Field(max_length=MOST)]


class ClassificationScores(Scores):
  """Scores of a classifier on one split.

  Attributes:
    loss: mean cross entropy, in nats.
    accuracy, precision, recall, f1: fractions; all but the accuracy are means
      over the classes.
    confusion: [C, C], number of examples of each true class (rows) with each
      predicted class (columns); [] if the task has more than
      `lra.core.tasks.MOST_CLASSES` classes.
    counted: number of examples that were scored; only without a confusion.
    parts: property of the examples -> its value -> the examples with it; only
      for the test split of some tasks.
    agreement: name of a simple rule -> share of the examples on which it gives
      the same class, right or wrong.
    correct: whether the class of each example is right, in the order of the
      prepared data, see `lra.core.bits`; '' if it was not kept.
  """
  loss: Annotated[float, Field(ge=0, le=1e300)]
  accuracy: Fraction
  precision: Fraction
  recall: Fraction
  f1: Fraction
  confusion: list[list[Count]] = []
  counted: Count = 0
  parts: Parts = {}
  agreement: Annotated[
      dict[Text, Fraction], Field(max_length=MOST)] = {}
  correct: str = ''

  @property
  def examples(self) -> int:
    """Number of examples that were scored."""
    return sum(map(sum, self.confusion)) if self.confusion else self.counted

  @pydantic.model_validator(mode='after')
  def _accuracy_is_that_of_the_confusion(self):
    classes = len(self.confusion)
    if any(len(row) != classes for row in self.confusion):
      raise ValueError("'confusion' is not square")
    if not self.examples:
      raise ValueError("'confusion' counts no example")
    if not self.confusion:
      return self._accuracy_is_that_of_the_count()
    hits = sum(self.confusion[i][i] for i in range(classes))
    if abs(hits / self.examples - self.accuracy) > 1e-6:
      raise ValueError(f"'confusion' gives accuracy {hits / self.examples:.6f} "
                       f"but 'accuracy' is {self.accuracy:.6f}")
    if self.correct and bits.unpack(
        self.correct, self.examples).sum() != hits:
      raise ValueError(f"'correct' does not hold {hits} correct answers")
    for name, value in _means_over_classes(self.confusion).items():
      if abs(value - getattr(self, name)) > 1e-6:
        raise ValueError(f"'confusion' gives {name} {value:.6f} but '{name}' "
                         f'is {getattr(self, name):.6f}')
    return self

  def _accuracy_is_that_of_the_count(self):
    hits = round(self.accuracy * self.counted)
    if abs(self.accuracy * self.counted - hits) > 1e-6 * self.counted:
      raise ValueError(f"'accuracy' is {self.accuracy:.6f}, but no number of "
                       f"the {self.counted} examples in 'counted' gives it")
    if self.correct and bits.unpack(self.correct, self.counted).sum() != hits:
      raise ValueError(f"'correct' does not hold {hits} correct answers")
    return self


class LongerScores(Record):
  """Scores on generated sequences of a length, or of a range of lengths.

  Attributes:
    examples: number of sequences.
    accuracy: fraction of right answers, over all questions of the sequences.
    loss: mean cross entropy, in nats.
  """
  examples: Annotated[int, Field(ge=1, le=10**9)]
  accuracy: Fraction
  loss: Annotated[float, Field(ge=0, le=1e300)]


def _means_over_classes(confusion):
  """Returns macro precision, recall and F1; 0 for a class with divisor 0."""
  counts = np.array(confusion, np.float64)
  hits = np.diag(counts)
  predicted, true = counts.sum(0), counts.sum(1)
  scores = {'precision': hits / np.maximum(predicted, 1),
            'recall': hits / np.maximum(true, 1),
            'f1': 2 * hits / np.maximum(predicted + true, 1)}
  return {name: float(score.mean()) for name, score in scores.items()}
