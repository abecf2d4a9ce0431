"""Shares data and compiled steps between the runs of one process."""

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lra.data import prepared
from lra.schema import identity

# Fields that compiled steps take as arguments or do not use.
_GIVEN = ('seed', 'data_dir', 'train.learning_rate', 'train.weight_decay',
          'train.eval_every', 'train.log_every', 'train.checkpoint_minutes')


class ProcessCache:
  """Holds data and compiled steps, made by the first run that needs them.

  Attributes:
    runs_at_once: number of runs that train at the same time.
    compiled: set once one of the runs has compiled its steps.
    varied: dotted names of the fields in which the runs' configs differ.
  """

  def __init__(self, runs_at_once: int = 1, experiments: Sequence = ()):
    self.runs_at_once = runs_at_once
    self.varied = identity.varied([e.config.to_dict() for e in experiments])
    self.compiled = threading.Event()
    self._lock = threading.RLock()
    self._made = {}

  def once(self, name: str, make: Callable[[], Any]) -> Any:
    """Returns `make()`, called by the first run with `name`; others wait."""
    with self._lock:
      if name not in self._made:
        self._made[name] = make()
      return self._made[name]

  def data(self, experiment) -> prepared.Content:
    config = experiment.config
    words = config.tokenizer_source and (
        config.tokenizer_source, experiment.objective.seq_len)
    return self.once(f'data of {config.task} in {config.data_dir} {words}',
                     experiment.data)


def step_key(program) -> str:
  """Returns a text that is equal for programs with the same compiled steps."""
  values = identity.flatten(program.config.to_dict())
  return json.dumps([program.dtype, str(program.sizes), {
      name: value for name, value in values.items()
      if name not in _GIVEN}], sort_keys=True)
