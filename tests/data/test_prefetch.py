"""`Prefetch` returns the batch of the requested step, in any order of steps."""

import threading

import pytest

from lra.data.batches import Prefetch


def test_batches_come_in_order_and_one_is_made_ahead():
  made, by = [], []
  done = threading.Event()

  def make(step):
    made.append(step)
    by.append(threading.current_thread() is threading.main_thread())
    if step == 1:
      done.set()
    return step * 10

  prefetch = Prefetch(make, 3)
  assert prefetch.get(0) == 0
  assert done.wait(10)  # batch 1 is made before anyone requests it
  assert [prefetch.get(1), prefetch.get(2)] == [10, 20]
  prefetch.close()
  assert made == [0, 1, 2]  # no batch for step 3, the end
  assert by == [True, False, False]


def test_a_batch_out_of_order_is_made_anew():
  prefetch = Prefetch(lambda step: step, 100)
  assert [prefetch.get(n) for n in (0, 7, 8, 3)] == [0, 7, 8, 3]
  prefetch.close()


def test_an_error_reaches_whoever_asks_for_the_batch():
  def make(step):
    if step == 1:
      raise ValueError('of step 1')
    return step

  prefetch = Prefetch(make, 9)
  assert prefetch.get(0) == 0
  with pytest.raises(ValueError, match='of step 1'):
    prefetch.get(1)
  prefetch.close()
