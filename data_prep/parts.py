"""Kinds of examples of a data set, and simple rules to compare answers with.

They show what an accuracy is made of, as on ListOps how far it is the answers
which the first operator suggests.
"""

import numpy as np

from data_prep import trees
from data_prep.content import Split

# Name of the rule that knows an expression's first token alone.
FIRST_OPERATOR = 'first operator'


def first_tokens(split: Split) -> np.ndarray:
  """Code of the first token of each document, uint8 [N]."""
  return split.tokens[split.offsets[:-1]]


def by_first_token(train: Split, test: Split) -> np.ndarray:
  """For each example of `test` the commonest label in `train` of those that
  begin with the same token, int64 [N].
  """
  counts = np.zeros((256, train.labels.max() + 1), np.int64)
  np.add.at(counts, (first_tokens(train), train.labels), 1)
  return counts.argmax(1)[first_tokens(test)]


def root_operators(split: Split) -> np.ndarray:
  """Name of the outermost operator of each expression; a digit has none."""
  names = np.array([token.strip('[') if token.startswith('[') else 'none'
                    for token in trees.TOKENS])
  return names[first_tokens(split)]


def depths(split: Split) -> np.ndarray:
  """How many operators are around the innermost token, int64 [N]."""
  # Each expression closes what it opens, so that the next one begins at 0.
  return np.maximum.reduceat(
      np.cumsum(_steps()[split.tokens]), split.offsets[:-1])


def _steps():
  """How many operators more are around what follows a token, by its code."""
  steps = np.zeros(len(trees.TOKENS), np.int64)
  steps[[trees.MIN, trees.MAX, trees.MED, trees.SM]] = 1
  steps[trees.CLOSE] = -1
  return steps


def deciding_depths(split: Split) -> np.ndarray:
  """How deep one must read each expression to be sure of its value, int64 [N].

  The least d such that the value is the same whatever stands inside more than
  d operators: 1 where the digits next to the outermost operator decide, as a 9
  does for MAX. A lone digit has 0, and what is no expression -1.
  """
  return np.array([
      _deciding_depth(split.document(i)) for i in range(len(split))])


def _deciding_depth(document):
  """Of one expression; its least and largest value for each depth read."""
  tokens = np.frombuffer(document, np.uint8)
  deepest = max(np.cumsum(_steps()[tokens]).max(initial=0), 0)
  depth, waiting, bounds = 0, [], []
  for token in document:
    if token < trees.DIGITS:
      bounds.append(np.full((2, deepest + 1), token))
    elif token < trees.CLOSE:
      waiting.append((token, bounds))
      depth, bounds = depth + 1, []
    elif not (waiting and bounds):
      return -1
    else:
      operator, before = waiting.pop()
      value = _bounds(operator, np.array(bounds))
      value[:, :depth] = [[0], [trees.DIGITS - 1]]  # not read
      depth, bounds = depth - 1, [*before, value]
  if waiting or len(bounds) != 1:
    return -1
  low, high = bounds[0]
  return int(np.argmax(low == high))


def _bounds(operator, arguments_Ax2xD):
  """Least and largest value of an operator, [2, D], from its arguments'.

  All but SM grow with each argument; a sum that is not known may be anything.
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


# Of a data set: name of a property -> its value for each example.
KINDS = {'listops': {'root operator': root_operators, 'depth': depths,
                     'decided at depth': deciding_depths}}
# Of a data set: name of a rule -> its answers on `test`, given `train`.
RULES = {'listops': {FIRST_OPERATOR: by_first_token}}


def accuracies(dataset: str, right: np.ndarray, test: Split) -> dict:
  """Accuracies on the kinds of examples of a data set.

  Args:
    dataset: its name.
    right: of each example of `test` whether its answer is right, bool [N].
    test: the examples.

  Returns:
    {property: {value: {'examples': how many have it, 'accuracy': a fraction}}};
    of most data sets {}.
  """
  found = {}
  for name, kind in KINDS.get(dataset, {}).items():
    values = kind(test)
    found[name] = {
        str(value): {'examples': int((values == value).sum()),
                     'accuracy': float(right[values == value].mean())}
        for value in np.unique(values)}
  return found
