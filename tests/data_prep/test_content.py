"""Tests of fixed subsets of data sets, and of the counts of duplicates."""

import numpy as np

from lra.data_prep import content
from lra.data_prep.content import split_of


def test_labels_are_as_even_as_the_size_allows():
  """The first labels get the remainder; the order of examples has no effect."""
  keys, labels = [f'k{i}' for i in range(60)], np.arange(60) % 3
  chosen = content.choose(keys, labels, 11)
  assert np.bincount(labels[chosen]).tolist() == [4, 4, 3]
  again = 59 - content.choose(keys[::-1], labels[::-1], 11)
  assert sorted(again) == chosen.tolist()


def test_pairs_are_equal_in_either_order():
  documents, labels = [b'a', b'b', b'c', b'd'], [0, 0, 0]
  splits = {
      'train': split_of(documents, labels, [[0, 1], [1, 0], [2, 3]]),
      'val': split_of(documents, labels, [[3, 2], [0, 2], [1, 3]])}
  assert content.duplicates(splits) == {
      'train': 1, 'val': 0, 'train and val': 1}


def test_documents_are_equal_by_their_bytes():
  splits = {'train': split_of([b'a', b'b', b'a'], [0, 1, 1]),
            'val': split_of([b'b', b'b', b'c'], [0, 1, 0])}
  assert content.duplicates(splits) == {
      'train': 1, 'val': 1, 'train and val': 2}
