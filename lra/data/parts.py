"""What an accuracy is made of, by the kinds of the examples."""

import numpy as np

from data_prep import parts
from data_prep.content import Split


def accuracies(dataset: str, predicted: np.ndarray, train: Split,
               test: Split) -> dict:
  """What the accuracy of these answers is made of.

  Args:
    dataset: name of the data set.
    predicted: an answer for each example of `test`, int [N].
    train: what the rules are made from.
    test: the examples.

  Returns:
    Nothing for most data sets; of others `parts`, {property: {value: examples
    and accuracy}}, and `agreement`, {rule: share of the examples on which it
    has the same answer}.
  """
  if dataset not in parts.KINDS:
    return {}
  return {
      'parts': parts.accuracies(dataset, predicted == test.labels, test),
      'agreement': {
          name: float(np.mean(rule(train, test) == predicted))
          for name, rule in parts.RULES[dataset].items()}}
