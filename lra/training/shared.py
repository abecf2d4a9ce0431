"""What runs of one process have in common, and make once."""

import threading
from collections.abc import Callable, Sequence
from typing import Any


class Shared:
  """Data and compiled steps, made by the first run that asks for them.

  Attributes:
    runs_at_once: how many of the runs train at the same time.
    varied: names of the fields in which their configs differ, such as
      `train.learning_rate`.
  """

  def __init__(self, runs_at_once: int = 1, *, varied: Sequence[str] = ()):
    self.runs_at_once, self.varied = runs_at_once, tuple(varied)
    self._lock = threading.RLock()
    self._made = {}

  def once(self, name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives when the first run asks for `name`; others wait."""
    with self._lock:
      if name not in self._made:
        self._made[name] = make()
      return self._made[name]
