"""The terminal: progress bars, messages, and the wish to stop."""

import signal
import sys
import time

import tqdm


def say(message: str) -> None:
  """One line that does not tear the bar."""
  tqdm.tqdm.write(message, file=sys.stderr)


def bar(*, total: int, done: int = 0, what: str, unit: str = 'step'):
  """A bar on stderr; without a terminal, a line every half minute."""
  quiet = not sys.stderr.isatty()
  return tqdm.tqdm(
      total=total, initial=done, desc=what, unit=unit, file=sys.stderr,
      leave=unit == 'step', mininterval=30 if quiet else 0.2,
      delay=30 if quiet and unit != 'step' else 0, dynamic_ncols=not quiet)


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
