"""Kinds of examples of a data set, and simple rules to compare answers with.

They break an accuracy down. On ListOps they show how often a model answers
like a rule that reads the first operator only.
"""

import numpy as np

from data_prep import trees
from data_prep.content import Split

# Name of the rule that reads only an expression's first token.
FIRST_OPERATOR = 'first operator'


def first_tokens(split: Split) -> np.ndarray:
  """Returns the code of the first token of each document, uint8 [N]."""
  return split.tokens[split.offsets[:-1]]


def by_first_token(train: Split, test: Split) -> np.ndarray:
  """Returns an answer to each example of `test`, int64 [N].

  It is the commonest label in `train` among examples with the same first token.
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
  """Counts the operators around the innermost token, int64 [N]."""
  # Each expression closes its brackets, so the next one begins at 0.
  return np.maximum.reduceat(
      np.cumsum(_steps()[split.tokens]), split.offsets[:-1])


def _steps():
  """Returns by which number each token code changes the depth after it."""
  steps = np.zeros(len(trees.TOKENS), np.int64)
  steps[[trees.MIN, trees.MAX, trees.MED, trees.SM]] = 1
  steps[trees.CLOSE] = -1
  return steps


def deciding_depths(split: Split) -> np.ndarray:
  """Returns the depth to which each expression decides its value, int64 [N].

  That is the least d such that tokens inside more than d operators cannot
  change the value. It is 1 if the digits next to the outermost operator decide
  (a 9 for MAX), 0 for a lone digit, and -1 for an invalid expression.
  """
  return np.array([
      _deciding_depth(split.document(i)) for i in range(len(split))])


def _deciding_depth(document):
  """Returns the deciding depth, from bounds of the value by depth."""
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
      value[:, :depth] = [[0], [trees.DIGITS - 1]]  # any digit, as not read
      depth, bounds = depth - 1, [*before, value]
  if waiting or len(bounds) != 1:
    return -1
  low, high = bounds[0]
  return int(np.argmax(low == high))


def _bounds(operator, arguments_Ax2xD):
  """Returns the least and largest value of an operator, [2, D].

  D is the number of depths down to which the expression may be read. MIN, MAX
  and MED never fall if an argument grows. SM, a sum modulo 10, has any value
  unless all its arguments are known.
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


# Data set -> name of a property -> function that returns its values.
KINDS = {'listops': {'root operator': root_operators, 'depth': depths,
                     'decided at depth': deciding_depths}}
# Data set -> name of a rule -> function of train and test: its answers.
RULES = {'listops': {FIRST_OPERATOR: by_first_token}}


def accuracies(dataset: str, right: np.ndarray, test: Split) -> dict:
  """Computes accuracies on the kinds of examples of a data set.

  `right`, bool [N], is True for each example of `test` with a right answer.

  Returns:
    {property: {value: {'examples': number with it, 'accuracy': a fraction}}};
    {} for most data sets.
  """
  found = {}
  for name, kind in KINDS.get(dataset, {}).items():
    values = kind(test)
    found[name] = {
        str(value): {'examples': int((values == value).sum()),
                     'accuracy': float(right[values == value].mean())}
        for value in np.unique(values)}
  return found


def of_answers(dataset: str, predicted: np.ndarray, train: Split,
               test: Split) -> dict:
  """Breaks the accuracy of the answers to `test`, int [N], down by its kinds.

  The rules to compare them with are fitted on `train`.

  Returns:
    {} for most data sets. Others have `parts`, see `accuracies`, and
    `agreement`, {rule: share of examples with the same answer}.
  """
  if dataset not in KINDS:
    return {}
  return {
      'parts': accuracies(dataset, predicted == test.labels, test),
      'agreement': {
          name: float(np.mean(rule(train, test) == predicted))
          for name, rule in RULES[dataset].items()}}
