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
  steps = np.zeros(len(trees.TOKENS), np.int64)
  steps[[trees.MIN, trees.MAX, trees.MED, trees.SM]] = 1
  steps[trees.CLOSE] = -1
  # Each expression closes what it opens, so that the next one begins at 0.
  return np.maximum.reduceat(
      np.cumsum(steps[split.tokens]), split.offsets[:-1])


# Of a data set: name of a property -> its value for each example.
KINDS = {'listops': {'root operator': root_operators, 'depth': depths}}
# Of a data set: name of a rule -> its answers on `test`, given `train`.
RULES = {'listops': {FIRST_OPERATOR: by_first_token}}
