"""Loads a data set into memory, after preparing it if necessary."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from lra import data_prep
from lra.data_prep import content
from lra.data_prep.content import Content, Split

__all__ = ['Content', 'Split', 'fold_val_into_train', 'load']


def load(task_name: str, data_dir=None, source=None) -> Content:
  """Reads the data set of a task, and prepares it first if necessary.

  Arguments and errors are those of `lra.data_prep.prepare`.
  """
  data_prep.prepare(task_name, data_dir, source)
  return data_prep.read(task_name, data_dir)


def chosen(split: Split, indices: Sequence[int]) -> Split:
  """Returns a split of the examples `indices`, in this order."""
  labels = split.labels[indices]
  if split.pairs is not None:
    return dataclasses.replace(
        split, labels=labels, pairs=split.pairs[indices])
  return content.split_of([split.document(i) for i in indices], labels,
                          dtype=split.tokens.dtype)


def lengths(split: Split) -> np.ndarray:
  """Returns the length of each example in tokens, int64 [N].

  For a pair it is the length of the longer document.
  """
  documents = np.diff(split.offsets)
  return documents if split.pairs is None else documents[split.pairs].max(1)


def fold_val_into_train(data: Content) -> Content:
  """Moves the examples of the validation split to the training split.

  LRA's Text has no validation split; published results train on all 25,000
  reviews and score the last checkpoint.
  """
  train, val = data.splits['train'], data.splits['val']
  labels = np.concatenate([train.labels, val.labels])
  if train.pairs is None:
    joined = Split(
        np.concatenate([train.tokens, val.tokens]),
        np.concatenate([train.offsets, train.offsets[-1] + val.offsets[1:]]),
        labels)
    none = Split(val.tokens[:0], val.offsets[:1], val.labels[:0])
  else:
    pairs = np.concatenate([train.pairs, val.pairs])
    joined = dataclasses.replace(train, labels=labels, pairs=pairs)
    none = dataclasses.replace(
        val, labels=val.labels[:0], pairs=val.pairs[:0])
  return dataclasses.replace(
      data, splits={**data.splits, 'train': joined, 'val': none})
