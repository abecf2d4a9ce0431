"""Makes and sends the next batch while the device works on this one."""

from collections.abc import Callable
from concurrent import futures
from typing import Any


class Prefetch:
  """Makes batches in the order of their steps, one ahead of its use.

  A thread makes the next batch. `get` itself makes a batch that the thread has
  not made, such as the first. A batch depends only on its step, not on who
  makes it.
  """

  def __init__(self, make: Callable[[int], Any], end: int):
    """Prepares to make batches; `end` and later steps are not made ahead."""
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
