"""Tests how the processes of a run agree when to save and when to stop."""

from lra.core.distributed import SharedStop

DELAY = 2  # training steps between sending a request and receiving all


class _Own:
  """Stand-in for the `StopRequest` of one process."""
  reason = ''

  def checkpoint(self, due):
    return due


def _stop(own):
  """Returns the `SharedStop` of a run with one process."""
  return SharedStop(own, lambda wishes, after: wishes)


def _run(stop, own, *, steps, due_after=None, asked_at=None):
  """Imitates the training loop; returns (steps of the saves, last step).

  The last step is None if the loop was not stopped.
  """
  saves, sent, last = [], [], 0
  for step in range(steps):
    if stop.reason:
      return saves, step
    own.reason = 'SIGTERM' if step == asked_at else own.reason
    if stop.checkpoint(bool(due_after) and step - last > due_after):
      saves.append(step)
      last = step
    sent.append(stop.ask(step))
    if len(sent) > DELAY:
      stop.hear(sent.pop(0))
  return saves, None


def test_each_checkpoint_that_is_due_is_made_once():
  own = _Own()
  saves, stopped = _run(_stop(own), own, steps=100, due_after=20)
  assert stopped is None
  assert [b - a for a, b in zip([0, *saves], saves, strict=False)] == [24] * 4


def test_a_stop_counts_once_all_have_heard_it():
  own = _Own()
  stop = _stop(own)
  assert _run(stop, own, steps=100, asked_at=10) == ([], 10 + DELAY + 1)
  assert stop.reason == 'SIGTERM'


def test_the_stop_of_another_is_a_stop():
  stop = _stop(_Own())
  stop.hear([1, 0])
  assert stop.reason == 'another process'
