"""A stopwatch."""

import time


class Clock:
  """Adds up stretches of time.

  Attributes:
    seconds: total of the finished stretches.
  """

  def __init__(self, seconds: float = 0.0):
    self.seconds = seconds
    self._since = None

  def start(self) -> None:
    """Begins a stretch, unless one is under way."""
    if self._since is None:
      self._since = time.perf_counter()

  def stop(self) -> None:
    """Ends the stretch under way, if there is one."""
    if self._since is not None:
      self.seconds += time.perf_counter() - self._since
      self._since = None
