"""Breaks accuracies on ListOps down, and compares answers with a simple rule.
"""

import numpy as np

from lra.data_prep import trees
from lra.data_prep.content import Split

# Name of the rule that reads only an expression's first token.
FIRST_OPERATOR = 'first operator'


def first_tokens(split: Split) -> np.ndarray:
  return split.tokens[split.offsets[:-1]]


def by_first_token(train: Split, test: Split) -> np.ndarray:
  """Predicts each label of `test` from the first token, int64 [N].

  The prediction is the commonest label in `train` of examples with that token.
  """
  counts = np.zeros((256, train.labels.max() + 1), np.int64)
  np.add.at(counts, (first_tokens(train), train.labels), 1)
  return counts.argmax(1)[first_tokens(test)]


def root_operators(split: Split) -> np.ndarray:
  """Returns the outermost operator of each expression; 'none' for a digit."""
  names = np.array([token.strip('[') if token.startswith('[') else 'none'
                    for token in trees.TOKENS])
  return names[first_tokens(split)]


def depths(split: Split) -> np.ndarray:
  """Returns the nesting depth of each expression, int64 [N]."""
  # Each expression closes its brackets, so the sum is 0 before the next one.
  return np.maximum.reduceat(_open(split.tokens), split.offsets[:-1])


def _open(tokens):
  """Returns the number of open brackets after each token, int64."""
  steps = np.zeros(len(trees.TOKENS), np.int64)
  steps[[trees.MIN, trees.MAX, trees.MED, trees.SM]] = 1
  steps[trees.CLOSE] = -1
  return np.cumsum(steps[tokens])


def deciding_depths(split: Split) -> np.ndarray:
  """Returns how deep each expression must be read to know its value, int64 [N].

  The result is the least d such that tokens inside more than d operators cannot
  change the value. It is 1 if the digits next to the outermost operator decide
  (a 9 for MAX), 0 for a lone digit, and -1 for an invalid expression.
  """
  return np.array([
      _deciding_depth(split.document(i)) for i in range(len(split))])


def _deciding_depth(document):
  # A value is int [2, D]: the least and the largest one that is possible if the
  # expression is read to a depth of 0 ... D - 1. It is known if they are equal.
  deepest = max(_open(np.frombuffer(document, np.uint8)).max(initial=0), 0)

  def apply(operator, arguments, depth):
    value = _bounds(operator, np.array(arguments))
    value[:, :depth] = [[0], [trees.DIGITS - 1]]  # not read here: any digit
    return value

  digits = [np.full((2, deepest + 1), d) for d in range(trees.DIGITS)]
  try:
    low, high = trees.fold(document, digits, apply)
  except ValueError:
    return -1
  return int(np.argmax(low == high))


def _bounds(operator, arguments_Ax2xD):
  """Returns the least and the largest value of an operator, [2, D].

  MIN, MAX and MED never fall if an argument grows. SM, a sum modulo 10, has any
  value unless all its arguments are known.
  """
  if operator == trees.MIN:
    return arguments_Ax2xD.min(0)
  if operator == trees.MAX:
    return arguments_Ax2xD.max(0)
  if operator == trees.MED:
    ordered = np.sort(arguments_Ax2xD, 0)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-middle - 1]) // 2
  low, high = arguments_Ax2xD.sum(0) % trees.DIGITS
  known = (arguments_Ax2xD[:, 0] == arguments_Ax2xD[:, 1]).all(0)
  return np.stack([np.where(known, low, 0),
                   np.where(known, high, trees.DIGITS - 1)])


def accuracies(dataset: str, right: np.ndarray, test: Split) -> dict:
  """Returns the accuracy for each value of each property of an expression.

  `right`, bool [N], is True for each example of `test` with a right answer. The
  result is {property: {value: {'examples': count, 'accuracy': fraction}}}, or
  {} for a data set other than ListOps.
  """
  if dataset != 'listops':
    return {}
  properties = {'root operator': root_operators(test), 'depth': depths(test),
                'decided at depth': deciding_depths(test)}
  return {name: {
      str(value): {'examples': int((values == value).sum()),
                   'accuracy': float(right[values == value].mean())}
      for value in np.unique(values)} for name, values in properties.items()}


def of_answers(dataset: str, predicted: np.ndarray, train: Split,
               test: Split) -> dict:
  """Returns `accuracies` of the answers `predicted`, int [N], to `test`.

  They are `parts` of the result. `agreement` is {rule: share of examples that
  it answers like `predicted`}. For a data set other than ListOps it is {}.
  """
  found = accuracies(dataset, predicted == test.labels, test)
  return found and {'parts': found, 'agreement': {FIRST_OPERATOR: float(
      np.mean(by_first_token(train, test) == predicted))}}
