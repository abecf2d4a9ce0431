"""Batches hold every example once per epoch, in an order fixed by the seed."""

import threading

import numpy as np
import pytest

from lra.data import batches
from lra.data.prepared import Split


def _split(lengths, pairs=None, seed=0):
  rng = np.random.default_rng(seed)
  offsets = np.concatenate([[0], np.cumsum(lengths)])
  tokens = rng.integers(0, 256, offsets[-1]).astype(np.uint8)
  n = len(lengths) if pairs is None else len(pairs)
  return Split(tokens, offsets, rng.integers(0, 2, n).astype(np.int32), pairs)


def test_gather_is_byte_plus_one_padded_and_cut():
  split = Split(np.array([0, 255, 7, 1, 2, 3], np.uint8),
                np.array([0, 2, 2, 6]), np.array([1, 0, 1], np.int32))
  batch = batches.gather(split, [2, 0, 1], 3)
  np.testing.assert_array_equal(
      batch['tokens'], [[8, 2, 3], [1, 256, 0], [0, 0, 0]])
  black = batches.gather(split, [0], 3, mask_black=True)
  np.testing.assert_array_equal(black['tokens'], [[0, 256, 0]])
  np.testing.assert_array_equal(batch['labels'], [1, 1, 0])


def test_gather_pairs():
  split = _split([3, 5, 2], pairs=np.array([[2, 0], [1, 1]], np.int32))
  tokens = batches.gather(split, [1, 0], 4)['tokens']
  assert tokens.shape == (2, 2, 4)
  document = split.tokens[:3].astype(int) + 1
  np.testing.assert_array_equal(tokens[1, 1], [*document, 0])
  np.testing.assert_array_equal(tokens[0, 0], tokens[0, 1])


def _gather(split, seq_len):
  """Returns a function that makes batches without any random choice."""
  return lambda indices, seed, step: batches.gather(split, indices, seq_len)


@pytest.mark.parametrize('size,batch_size', [(10, 4), (7, 7), (5, 12)])
def test_epochs_visit_every_example_once(size, batch_size):
  steps = 5 * size
  seen = np.concatenate([
      batches.train_indices(size, batch_size, 3, s) for s in range(steps)])
  epochs = seen[:len(seen) // size * size].reshape(-1, size)
  assert (np.sort(epochs, axis=1) == np.arange(size)).all()
  assert len({tuple(e) for e in epochs}) > 1


def test_batch_is_a_function_of_seed_and_step():
  split = _split([4] * 50)
  make = lambda seed, step: batches.train_batch(
      _gather(split, 5), 50, batch_size=8, microbatch_size=4, seed=seed,
      step=step)
  a, b = make(1, 9), make(1, 9)
  assert a['tokens'].shape == (2, 4, 5)
  np.testing.assert_array_equal(a['tokens'], b['tokens'])
  assert not np.array_equal(a['tokens'], make(2, 9)['tokens'])
  assert not np.array_equal(a['tokens'], make(1, 10)['tokens'])


def test_a_batch_sorted_by_length_has_the_same_examples():
  lengths = np.random.default_rng(0).permutation(50) + 1
  split = _split(lengths)
  make = lambda lengths: batches.train_batch(
      _gather(split, 50), 50, batch_size=8, microbatch_size=4, seed=0, step=2,
      lengths=lengths)['tokens'].reshape(8, 50)
  found = (make(lengths) > 0).sum(1)
  assert (np.diff(found) > 0).all()
  assert set(found) == set((make(None) > 0).sum(1))


@pytest.mark.parametrize('batch_size', [1, 4, 10, 16])
def test_eval_batches_count_every_example_once(batch_size):
  split = _split([3] * 10)
  found = list(batches.eval_batches(
      _gather(split, 3), np.arange(10), batch_size=batch_size))
  assert all(len(b['labels']) == batch_size for b in found)
  weights = np.concatenate([b['weights'] for b in found])
  tokens = np.concatenate([b['tokens'] for b in found])[weights > 0]
  np.testing.assert_array_equal(
      tokens, split.tokens.reshape(10, 3).astype(int) + 1)


def test_batches_come_in_order_and_one_is_made_ahead():
  made, by = [], []
  done = threading.Event()

  def make(step):
    made.append(step)
    by.append(threading.current_thread() is threading.main_thread())
    if step == 1:
      done.set()
    return step * 10

  prefetch = batches.Prefetch(make, 3)
  assert prefetch.get(0) == 0
  assert done.wait(10)  # batch 1 is made before anyone requests it
  assert [prefetch.get(1), prefetch.get(2)] == [10, 20]
  prefetch.close()
  assert made == [0, 1, 2]  # no batch for step 3, the end
  assert by == [True, False, False]


def test_an_error_reaches_whoever_asks_for_the_batch():
  def make(step):
    if step == 1:
      raise ValueError('of step 1')
    return step

  prefetch = batches.Prefetch(make, 9)
  assert [prefetch.get(n) for n in (7, 3, 0)] == [7, 3, 0]  # out of order
  with pytest.raises(ValueError, match='of step 1'):
    prefetch.get(1)
  prefetch.close()
