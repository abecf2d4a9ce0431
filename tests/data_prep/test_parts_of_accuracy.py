"""Tests the accuracy on subsets of the examples, counted by hand."""

import numpy as np
import pytest

from lra.data_prep import listops, parts
from lra.data_prep.content import split_of


def _split(expressions, labels):
  return split_of([listops.encode(e) for e in expressions], labels)


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
