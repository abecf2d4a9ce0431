"""Compares depths, operators and partial accuracies with known ones."""

import itertools

import numpy as np
import pytest

from lra.data_prep import listops, parts, trees
from lra.data_prep.content import split_of

EXPRESSIONS = (
    ('[MAX 1 2 ]', 'MAX', 1), ('[SM 1 [MIN 2 3 ] 4 ]', 'SM', 2),
    ('7', 'none', 0),
    ('[MED [MAX 1 [SM 2 2 ] ] [MIN 0 1 ] ]', 'MED', 3),
    ('[MAX 3 3 ]', 'MAX', 1), ('[MIN [MIN [MIN 1 1 ] 1 ] 1 ]', 'MIN', 3))


def _split(expressions, labels):
  return split_of([listops.encode(e) for e in expressions], labels)


def test_operators_and_depths():
  split = _split([e for e, _, _ in EXPRESSIONS], [0] * len(EXPRESSIONS))
  assert parts.root_operators(split).tolist() == [o for _, o, _ in EXPRESSIONS]
  assert parts.depths(split).tolist() == [d for _, _, d in EXPRESSIONS]


@pytest.mark.parametrize('expression, depth', [
    ('7', 0), ('[MAX 1 2 ]', 1), ('[MAX 9 [SM 1 2 ] ]', 1),
    ('[MAX 8 [SM 1 2 ] ]', 2), ('[MIN [MAX 3 [SM 1 1 ] ] 0 4 ]', 1),
    ('[MIN [MAX 3 [SM 1 1 ] ] 3 4 ]', 2), ('[SM 0 [MIN 0 [MAX 5 ] ] ]', 2),
    ('[SM 0 [MIN 1 [MAX 5 ] ] ]', 3),
    ('[MED 4 4 4 [SM 1 1 ] [MAX 2 [MIN 3 3 ] ] ]', 1),
    ('[MED 4 5 4 [SM 1 1 ] [MAX 2 [MIN 3 3 ] ] ]', 2),
    ('[MED 4 5 4 5 [SM 1 1 ] [MAX 2 [MIN 3 3 ] ] ]', 2)])
def test_deciding_depths(expression, depth):
  assert parts.deciding_depths(_split([expression], [0])).tolist() == [depth]


@pytest.mark.parametrize('tokens', [
    [trees.MAX, trees.CLOSE], [trees.MAX, 1], [1, trees.CLOSE], [1, 2], []])
def test_what_is_no_expression_is_decided_nowhere(tokens):
  """Invalid expressions have the depth -1 and raise no error."""
  split = split_of([bytes([*tokens]), listops.encode('[MAX 1 [SM 1 1 ] ]')],
                   [0, 0])
  assert parts.deciding_depths(split).tolist() == [-1, 2]


def test_deciding_depths_by_trying_all_that_is_not_read():
  """Checks the depths by brute force.

  To read an expression to depth d, each operator at depth d + 1 is replaced by
  every digit in turn. The result is the least d that leaves one value.
  """
  variant = listops.Variant(listops.trees.Process(4, 3, 1, 40), (150, 1, 1))
  split = listops.generate(variant).splits['train']

  def values(words, limit):
    """Removes the leading expression from `words`; returns its values."""
    word = words.pop(0)
    if not word.startswith('['):
      return {int(word)}
    arguments = []
    while words[0] != ']':
      arguments.append(values(words, limit - 1))
    words.pop(0)
    if limit == 0:
      return set(range(10))
    return {listops.evaluate(listops.encode(
        f'{word} {" ".join(map(str, some))} ]'))
            for some in itertools.product(*arguments)}

  found = parts.deciding_depths(split)
  for i, depth in enumerate(found):
    words = listops.decode(split.document(i)).split()
    tried = [len(values(list(words), d)) == 1 for d in range(5)]
    assert tried.index(True) == depth, words
  assert set(found) >= {1, 2, 3}


def test_what_an_accuracy_is_made_of():
  train = _split(['[MAX 1 2 ]', '[MAX 9 8 ]', '[MAX 0 9 ]', '[MIN 1 1 ]'],
                 [2, 9, 9, 1])
  test = _split(
      ['[MAX 9 9 ]', '[MAX 1 [MIN 1 0 ] ]', '[MIN 2 3 ]', '[SM 1 1 ]'],
      [9, 1, 2, 2])
  predicted = np.array([9, 1, 1, 2])
  said = parts.of_answers('listops', predicted, train, test)
  assert said['parts']['root operator'] == {
      'MAX': {'examples': 2, 'accuracy': 1.0},
      'MIN': {'examples': 1, 'accuracy': 0.0},
      'SM': {'examples': 1, 'accuracy': 1.0}}
  assert said['parts']['depth'] == {
      '1': {'examples': 3, 'accuracy': pytest.approx(2 / 3)},
      '2': {'examples': 1, 'accuracy': 1.0}}
  # The baseline answers 9 for MAX, 1 for MIN, and 0 for SM, unseen in `train`.
  assert said['agreement'] == {'first operator': 0.5}
  assert parts.of_answers('text', predicted, train, test) == {}
