"""When to stop a run early: a signal, or the time it was given."""

import signal
import time


class StopRequest:
  """Context in which SIGTERM and Ctrl-C ask for a stop between steps.

  A second Ctrl-C interrupts at once.

  Attributes:
    reason: why to stop, '' while there is no reason.
  """

  def __init__(self, max_minutes: float | None):
    self._deadline = (
        None if max_minutes is None else time.monotonic() + 60 * max_minutes)
    self._reason = ''
    self._before = {}

  def __enter__(self):
    for name in (signal.SIGTERM, signal.SIGINT):
      self._before[name] = signal.signal(name, self._on_signal)
    return self

  def __exit__(self, *exc):
    for name, handler in self._before.items():
      signal.signal(name, handler)

  def _on_signal(self, number, frame):
    if self._reason and number == signal.SIGINT:
      raise KeyboardInterrupt
    self._reason = signal.Signals(number).name

  @property
  def reason(self) -> str:
    if not self._reason and self._deadline is not None:
      if time.monotonic() >= self._deadline:
        self._reason = 'time limit'
    return self._reason
