"""Arrays of a data set: fingerprints them, chooses and compares examples."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

SPLITS = ('train', 'val', 'test')


@dataclasses.dataclass(frozen=True)
class Split:
  """Examples of one split.

  Attributes:
    tokens: uint8, or uint16 for large vocabularies: the token codes of all
      documents, one after the other.
    offsets: int64 [documents + 1], the first token of each document, then the
      number of all tokens.
    labels: int32 [N].
    pairs: int32 [N, 2], the documents of each example; None if example i is
      document i.
  """
  tokens: np.ndarray
  offsets: np.ndarray
  labels: np.ndarray
  pairs: np.ndarray | None = None

  def document(self, i: int) -> bytes:
      return self.tokens[self.offsets[i]:self.offsets[i + 1]].tobytes()

  def __len__(self) -> int:
    return len(self.labels)


@dataclasses.dataclass(frozen=True)
class Content:
  """A data set in memory: 'train', 'val' and 'test', and facts for JSON.

  If examples are pairs of documents, the splits share `tokens` and `offsets`.
  """
  splits: Mapping[str, Split]
  info: Mapping

  @property
  def fingerprint(self) -> str:
    """SHA-256 of the content of a prepared data set."""
    return self.info['fingerprint']


def split_of(documents: Sequence[bytes], labels: Iterable[int],
             pairs=None, dtype=np.uint8) -> Split:
  """Makes a split of byte strings, labels and, for pairs, [N, 2] indices.

  The byte strings hold token codes of `dtype`, uint8 or uint16.
  """
  lengths = np.fromiter((len(d) for d in documents), np.int64, len(documents))
  lengths //= np.dtype(dtype).itemsize
  return Split(
      np.frombuffer(b''.join(documents), dtype),
      np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
      np.asarray(labels, np.int32),
      None if pairs is None else np.asarray(pairs, np.int32).reshape(-1, 2))


def images_split(images: np.ndarray, labels) -> Split:
  """Makes a split of uint8 [N, H, W] images, row by row, and [N] labels."""
  pixels = images[0].size if len(images) else 1
  return Split(np.ascontiguousarray(images).reshape(-1),
               np.arange(len(images) + 1, dtype=np.int64) * pixels,
               np.asarray(labels, np.int32))


def fingerprint(splits: Mapping[str, Split]) -> str:
  """Returns the SHA-256 of all tokens, offsets, pairs and labels."""
  digest = hashlib.sha256()

  def add(name, array, dtype):
    array = np.ascontiguousarray(array, dtype)
    digest.update(f'{name} {array.dtype.str} {array.shape};'.encode())
    digest.update(array)

  def add_documents(split):
    add('offsets', split.offsets, '<i8')
    add('tokens', split.tokens, split.tokens.dtype.newbyteorder('<').str)

  if splits['train'].pairs is not None:
    add_documents(splits['train'])
  for name in SPLITS:
    digest.update(f'{name};'.encode())
    split = splits[name]
    if split.pairs is None:
      add_documents(split)
    else:
      add('pairs', split.pairs, '<i4')
    add('labels', split.labels, '<i4')
  return digest.hexdigest()


def slices(sizes: Iterable[int]) -> dict[str, slice]:
  """Returns the slice of each split if the splits follow one another."""
  stops = np.cumsum([0, *sizes]).tolist()
  return {name: slice(start, stop) for name, start, stop in
          zip(SPLITS, stops, stops[1:], strict=False)}


def choose(keys: Sequence[str], labels: Sequence[int], size: int) -> np.ndarray:
  """Returns `size` indices, equally many of each label, in ascending order.

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


def divided(train: Sequence[tuple], test: Sequence[tuple], val: int,
            sizes: Sequence[int] | None = None) -> dict[str, Split]:
  """Makes splits of examples (key, document, label), which keep their order.

  `choose` finds the `val` examples of train that become the validation split,
  and those of each split that stay if `sizes` are given.
  """
  keys, _, labels = zip(*train, strict=True)
  held, splits = set(choose(keys, labels, val).tolist()), {}
  parts = ([e for i, e in enumerate(train) if i not in held],
           [e for i, e in enumerate(train) if i in held], test)
  for i, (name, examples) in enumerate(zip(SPLITS, parts, strict=True)):
    keys, documents, labels = zip(*examples, strict=True)
    kept = choose(keys, labels, sizes[i]) if sizes else range(len(keys))
    splits[name] = split_of(
        [documents[k] for k in kept], [labels[k] for k in kept])
  return splits


def duplicates(splits: Mapping[str, Split]) -> dict[str, int]:
  """Counts duplicate examples within each split and between two splits.

  The result is such as {'train': 0, 'val': 1, 'train and val': 3, ...}: an
  example of val occurred before in val, three occur in train. The order of a
  pair's documents does not matter.
  """
  found, earlier = {}, {}
  for name, split in splits.items():
    examples = [
        digest(split.document(i)) for i in range(len(split))
    ] if split.pairs is None else [
        tuple(pair) for pair in np.sort(split.pairs, axis=1).tolist()]
    distinct = set(examples)
    found[name] = len(examples) - len(distinct)
    for other, known in earlier.items():
      found[f'{other} and {name}'] = sum(e in known for e in examples)
    earlier[name] = distinct
  return found


def digest(document: bytes) -> bytes:
  """Returns 16 bytes that differ for different documents."""
  return hashlib.blake2b(document, digest_size=16).digest()
