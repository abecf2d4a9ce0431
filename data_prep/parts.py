"""Groups the examples of a data set, to break an accuracy down.

A model's answers are also compared with those of a simple rule. The rule for
ListOps reads only the first operator.
"""

import numpy as np

from lra.data_prep import trees
from lra.data_prep.content import Split

# Name of the rule that reads only an expression's first token.
FIRST_OPERATOR = 'first operator'


def first_tokens(split: Split) -> np.ndarray:
  """Returns the code of the first token of each document, uint8 [N]."""
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
  return np.maximum.reduceat(
      np.cumsum(_steps()[split.tokens]), split.offsets[:-1])


def _steps():
  """Returns the change of depth at each token code: 1, -1 or 0."""
  steps = np.zeros(len(trees.TOKENS), np.int64)
  steps[[trees.MIN, trees.MAX, trees.MED, trees.SM]] = 1
  steps[trees.CLOSE] = -1
  return steps


def deciding_depths(split: Split) -> np.ndarray:
  """Returns how deep each expression must be read to know its value, int64 [N].

  The result is the least d such that tokens inside more than d operators cannot
  change the value. It is 1 if the digits next to the outermost operator decide
  (a 9 for MAX), 0 for a lone digit, and -1 for an invalid expression.
  """
  return np.array([
      _deciding_depth(split.document(i)) for i in range(len(split))])


def _deciding_depth(document):
  """Computes `deciding_depths` of one expression.

  For each depth down to which the expression is read, `bounds` holds the least
  and largest value of each argument. A value is known if the two are equal.
  """
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
      value[:, :depth] = [[0], [trees.DIGITS - 1]]  # not read here: any digit
      depth, bounds = depth - 1, [*before, value]
  if waiting or len(bounds) != 1:
    return -1
  low, high = bounds[0]
  return int(np.argmax(low == high))


def _bounds(operator, arguments_Ax2xD):
  """Returns the least and largest value of an operator, [2, D].

  D is the number of depths down to which the expression may be read. The
  arguments are given by their least and largest values. MIN, MAX and MED never
  fall if an argument grows. SM, a sum modulo 10, has any value unless all its
  arguments are known.
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


# Data set -> name of a property -> function from a split to its values, [N].
KINDS = {'listops': {'root operator': root_operators, 'depth': depths,
                     'decided at depth': deciding_depths}}
# Data set -> name of a rule -> function from train and test to answers, [N].
RULES = {'listops': {FIRST_OPERATOR: by_first_token}}


def accuracies(dataset: str, right: np.ndarray, test: Split) -> dict:
  """Computes the accuracy for each value of each property in `KINDS`.

  `right`, bool [N], is True for each example of `test` with a right answer.

  Returns:
    {property: {value: {'examples': count, 'accuracy': fraction}}}; {} for a
    data set without properties.
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
  """Breaks an accuracy down, and compares the answers with simple rules.

  `predicted`, int [N], holds the answers to `test`. Rules are fitted on
  `train`.

  Returns:
    {} for a data set without properties. Otherwise `parts`, see `accuracies`,
    and `agreement`, {rule: share of examples that it answers like `predicted`}.
  """
  if dataset not in KINDS:
    return {}
  return {
      'parts': accuracies(dataset, predicted == test.labels, test),
      'agreement': {
          name: float(np.mean(rule(train, test) == predicted))
          for name, rule in RULES[dataset].items()}}
