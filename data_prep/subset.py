"""Chooses a fixed part of a data set, and counts duplicates."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from data_prep.content import Split


def choose(keys: Sequence[str], labels: Sequence[int], size: int) -> np.ndarray:
  """Returns `size` indices, as many of each label, in ascending order.

  The choice depends only on the hashes of the keys: neither on the order of the
  examples nor on a random number generator.
  """
  labels = np.asarray(labels)
  classes = np.unique(labels)
  hashes = np.array([hashlib.blake2b(k.encode(), digest_size=8).hexdigest()
                     for k in keys])
  chosen = []
  for i, label in enumerate(classes):
    members = np.flatnonzero(labels == label)
    # The remainder goes to the first labels.
    count = size // len(classes) + (i < size % len(classes))
    chosen.append(members[np.argsort(hashes[members], kind='stable')[:count]])
  return np.sort(np.concatenate(chosen))


def duplicates(splits: Mapping[str, Split]) -> dict[str, int]:
  """Counts examples that occur in an earlier split, or before in their own.

  Returns:
    {'train': 0, 'train and val': 3, ...}. A split counts the examples whose
    bytes came before. Two splits count examples of the second whose bytes
    occur in the first. Pairs are equal in either order.
  """
  found, earlier = {}, {}
  for name, split in splits.items():
    examples = _examples(split)
    distinct = set(examples)
    found[name] = len(examples) - len(distinct)
    for other, known in earlier.items():
      found[f'{other} and {name}'] = sum(e in known for e in examples)
    earlier[name] = distinct
  return found


def _examples(split):
  if split.pairs is None:
    return [hashlib.blake2b(split.document(i), digest_size=16).digest()
            for i in range(len(split))]
  return [tuple(pair) for pair in np.sort(split.pairs, axis=1).tolist()]
