"""What runs of one process that differ in their seed only make once."""

import threading
from collections.abc import Callable
from typing import Any


class Shared:
  """Data and compiled steps, made by the first run that asks for them.

  Attributes:
    runs_at_once: how many of the runs train at the same time.
    several: whether there is more than one run.
  """

  def __init__(self, runs_at_once: int = 1, *, several: bool = False):
    self.runs_at_once, self.several = runs_at_once, several
    self._lock = threading.RLock()
    self._made = {}

  def once(self, name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives when the first run asks for `name`; others wait."""
    with self._lock:
      if name not in self._made:
        self._made[name] = make()
      return self._made[name]
