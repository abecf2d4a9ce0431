"""A stopwatch."""

import time


class Clock:
  """Adds up stretches of time, in seconds.

  Attributes:
    seconds: total of the finished stretches.
  """

  def __init__(self, seconds: float = 0.0):
    self.seconds = seconds
    self._since = None

  def start(self) -> None:
    """Begins a stretch, unless it has begun already."""
    if self._since is None:
      self._since = time.perf_counter()

  def stop(self) -> None:
    """Ends the current stretch, if any."""
    if self._since is not None:
      self.seconds += time.perf_counter() - self._since
      self._since = None
