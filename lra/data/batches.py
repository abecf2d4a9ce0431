"""Makes batches of prepared arrays; a batch depends only on seed and step."""

import functools
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import numpy as np

from lra.data.prepared import Split

Batch = dict[str, np.ndarray]


def gather(split: Split, indices, seq_len: int, *, mask_black: bool = False,
           places=None) -> Batch:
  """Returns the examples `indices` of a split as arrays.

  A token's id is its code plus one; 0 is padding. With `mask_black` code 0, a
  black pixel, counts as padding too. `places` [B] (pairs: [B, 2]), from 0 to 1,
  say which window of a longer sequence to take; by default the first one.

  Returns:
    tokens int16 [B, L] (pairs: [B, 2, L]), `seq_len` ids of each sequence;
    labels int32 [B]; weights float32 [B], ones.
  """
  indices = np.asarray(indices)
  documents = indices if split.pairs is None else split.pairs[indices]
  flat = documents.reshape(-1)
  starts = split.offsets[flat]
  lengths = split.offsets[flat + 1] - starts
  if places is not None:
    beyond = np.maximum(lengths - seq_len, 0)
    starts = starts + np.floor((beyond + 1) * places.reshape(-1)).astype(int)
  lengths = np.minimum(lengths, seq_len)
  codes = np.zeros((flat.size, seq_len), split.tokens.dtype)
  for row, start, length in zip(
      codes, starts.tolist(), lengths.tolist(), strict=True):
    row[:length] = split.tokens[start:start + length]
  tokens = codes.astype(np.int16)
  tokens += 1
  tokens *= np.arange(seq_len) < lengths[:, None]
  if mask_black:
    tokens *= codes > 0
  return {'tokens': tokens.reshape(*documents.shape, seq_len),
          'labels': split.labels[indices].astype(np.int32),
          'weights': np.ones(indices.shape, np.float32)}


@functools.lru_cache(maxsize=4)
def epoch_order(size: int, seed: int, epoch: int) -> np.ndarray:
  """Returns the order in which epoch `epoch` visits `size` examples."""
  return np.random.default_rng([seed, epoch]).permutation(size)


def train_indices(size: int, batch_size: int, seed: int, step: int):
  """Returns the examples of `step` (from 0); each occurs once per epoch."""
  # Plain Python: a numpy call is slow while a busy device keeps caches cold.
  epoch, place = divmod(step * batch_size, size)
  pieces, missing = [], batch_size
  while missing:
    pieces.append(epoch_order(size, seed, epoch)[place:place + missing])
    missing -= len(pieces[-1])
    epoch, place = epoch + 1, 0
  return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def train_batch(make: Callable[..., Batch], size: int, *, batch_size: int,
                microbatch_size: int, seed: int, step: int,
                lengths: np.ndarray | None = None,
                rows: slice = slice(None)) -> Batch:
  """Returns the batch of `step`: arrays [N, microbatch_size, ...].

  `place`, int32 [N, microbatch_size], has the place of each example in the
  batch before any sorting. Dropout depends on it (`lra.nn.draws`).

  Args:
    make: (indices, seed, step) -> arrays of these examples.
    size: number of examples to choose from.
    batch_size: examples of one optimizer step.
    microbatch_size: examples of one forward and backward pass.
    seed: fixes the order of examples.
    step: number of optimizer steps made before.
    lengths: [size], by which a batch is sorted; None keeps the random order.
    rows: the examples of each microbatch to make; by default all.
  """
  indices = train_indices(size, batch_size, seed, step)
  place = np.arange(batch_size, dtype=np.int32)
  if lengths is not None:
    place = place[np.argsort(lengths[indices], kind='stable')]
  place = place.reshape(-1, microbatch_size)[:, rows]
  batch = make(indices[place.reshape(-1)], seed=seed, step=step)
  batch['place'] = place.reshape(-1)
  return {k: v.reshape(*place.shape, *v.shape[1:]) for k, v in batch.items()}


def eval_batches(make: Callable[..., Batch], order: np.ndarray, *,
                 batch_size: int, seed: int = 0, rows: slice = slice(None)
                 ) -> Iterator[Batch]:
  """Yields every example once; the last batch is filled up with weight 0.

  `order`, int [N], has the indices of the examples. `make` and `rows` are those
  of `train_batch`; batches have the steps -1, -2, ...
  """
  size = len(order)
  for number, start in enumerate(range(0, size, batch_size), 1):
    places = np.arange(start, start + batch_size)[rows]
    batch = make(order[np.minimum(places, size - 1)], seed=seed, step=-number)
    batch['weights'][places >= size] = 0
    yield batch


class Prefetch:
  """Makes batches in the order of their steps, one ahead of its use.

  A thread makes the next batch while the device works on this one; `get` makes
  the others. A batch depends only on its step, not on who makes it.
  """

  def __init__(self, make: Callable[[int], Any], end: int):
    """`end` and later steps are not made ahead."""
    self._make, self._end = make, end
    self._pool = futures.ThreadPoolExecutor(1, 'batch')
    self._next = None

  def get(self, step: int) -> Any:
    """Returns the batch of `step` and starts making the next one."""
    made, self._next = self._next, None
    batch = (made[1].result() if made and made[0] == step
             else self._make(step))
    if step + 1 < self._end:
      self._next = step + 1, self._pool.submit(self._make, step + 1)
    return batch

  def close(self) -> None:
    """Waits for the batch under way, if any."""
    self._pool.shutdown(cancel_futures=True)
