"""Reads the progress that the newest checkpoint of a run holds, without JAX."""

import pathlib

from lra.core import files
from lra.core.errors import UserError


def newest(folder: pathlib.Path) -> tuple[int, dict]:
  """Returns the step of the newest checkpoint, and the run's progress in it.

  Args:
    folder: a run directory.

  Returns:
    The step, 0 if there is no checkpoint, and the fields of
    `lra.run.counters.RunCounters`, {} if they cannot be read: the run
    itself will report that.
  """
  last = folder / 'checkpoints' / 'last'
  step = max((int(path.name) for path in last.glob('[0-9]*')
              if path.name.isdecimal()), default=0)
  try:
    memory = files.read_json(last / str(step) / 'memory' / 'metadata')
  except UserError:
    memory = None
  return step, memory if isinstance(memory, dict) else {}
