"""The terminal: progress bars, messages, and requests to stop."""

import contextlib
import functools
import signal
import sys
import threading
import time

import tqdm

from lra.core import signals
from lra.core.formats import escaped

TIME_LIMIT = 'time limit'  # a reason to stop
_quiet = False


def be_quiet() -> None:
  """Turns off messages and bars of this process; another process shows them."""
  global _quiet
  _quiet = True


def say(message: str) -> None:
  """Prints one line without breaking the bar."""
  if not _quiet:
    tqdm.tqdm.write(escaped(message), file=sys.stderr)


# A progress bar over an iterable, which does not flood a log.
progress = functools.partial(tqdm.tqdm, mininterval=0.5)


def bar(*, total: int, done: int = 0, what: str, unit: str = 'step'):
  """Returns a bar on stderr; without a terminal, a line every half minute."""
  quiet = not sys.stderr.isatty()
  return tqdm.tqdm(
      total=total, initial=done, desc=what, unit=unit, file=sys.stderr,
      leave=unit == 'step', mininterval=30 if quiet else 0.2,
      delay=30 if quiet and unit != 'step' else 0, dynamic_ncols=not quiet,
      position=0 if quiet else None, disable=_quiet)


class StopRequest:
  """Context in which a signal or a deadline asks for a stop between steps.

  In a command the signals are those of `lra.core.signals`. Elsewhere, as in a
  notebook, they are SIGTERM and Ctrl-C, whose second one interrupts at once.
  """

  def __init__(self, max_minutes: float | None):
    self._deadline = (
        float('inf') if max_minutes is None
        else time.monotonic() + 60 * max_minutes)
    self._reason, self._hang_ups = '', signals.hang_ups()
    self._context = contextlib.ExitStack()

  def __enter__(self):
    if signals.listening():
      self._context.enter_context(
          signals.later('after this step, with a checkpoint'))
    elif threading.current_thread() is threading.main_thread():
      for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.signal(number, self._on_signal)
        self._context.callback(signal.signal, number, before)
    return self

  def __exit__(self, *exc):
    self._context.close()

  def _on_signal(self, number, frame):
    if self._reason and number == signal.SIGINT:
      raise KeyboardInterrupt
    self._reason = signal.Signals(number).name

  @property
  def reason(self) -> str:
    late = time.monotonic() >= self._deadline
    self._reason = self._reason or signals.reason() or (
        TIME_LIMIT if late else '')
    return self._reason

  def ask(self, reason: str) -> None:
    self._reason = self._reason or reason

  def checkpoint(self, due: bool = False) -> bool:
    """Returns whether a checkpoint is due, or requested since the last call."""
    seen, self._hang_ups = self._hang_ups, signals.hang_ups()
    return due or self._hang_ups > seen
