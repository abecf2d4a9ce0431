"""Breaks an accuracy down by the kinds of the examples."""

import numpy as np

from data_prep import parts
from data_prep.content import Split


def accuracies(dataset: str, predicted: np.ndarray, train: Split,
               test: Split) -> dict:
  """Breaks the accuracy of these answers down by the kinds of the examples.

  Args:
    dataset: name of the data set.
    predicted: an answer for each example of `test`, int [N].
    train: the examples to fit the rules on.
    test: the examples.

  Returns:
    {} for most data sets. Others have `parts`, {property: {value: examples and
    accuracy}}, and `agreement`, {rule: share of examples with the same answer}.
  """
  if dataset not in parts.KINDS:
    return {}
  return {
      'parts': parts.accuracies(dataset, predicted == test.labels, test),
      'agreement': {
          name: float(np.mean(rule(train, test) == predicted))
          for name, rule in parts.RULES[dataset].items()}}
