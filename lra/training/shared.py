"""What runs of one process have in common, and make once."""

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lra import identity
from lra.data import prepared

# What compiled steps are given as they run, or never see.
_GIVEN = ('seed', 'data_dir', 'train.learning_rate', 'train.weight_decay',
          'train.eval_every', 'train.log_every', 'train.checkpoint_minutes')


def shape(config, dtype: str, sizes) -> str:
  """Equal for configs whose compiled steps are the same.

  Args:
    config: the whole config.
    dtype: what is computed in.
    sizes: `lra.training.sizes.Sizes` that are tried first.
  """
  values = identity.flatten(config.to_dict())
  return json.dumps([dtype, str(sizes), {
      name: value for name, value in values.items()
      if name not in _GIVEN}], sort_keys=True)


class Shared:
  """Data and compiled steps, made by the first run that asks for them.

  Attributes:
    runs_at_once: how many of the runs train at the same time.
    compiled: set once one of them has compiled its steps.
    varied: names of the fields in which their configs differ, such as
      `train.learning_rate`.
  """

  def __init__(self, runs_at_once: int = 1, configs: Sequence = ()):
    self.runs_at_once = runs_at_once
    self.varied = identity.varied([config.to_dict() for config in configs])
    self.compiled = threading.Event()
    self._lock = threading.RLock()
    self._made = {}

  def once(self, name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives when the first run asks for `name`; others wait."""
    with self._lock:
      if name not in self._made:
        self._made[name] = make()
      return self._made[name]

  def data(self, config) -> prepared.Prepared:
    """The data set of a config's task; raises what `prepared.load` raises."""
    folder = config.data_dir or None
    return self.once(f'data of {config.task} in {folder}',
                     lambda: prepared.load(config.task, folder))
