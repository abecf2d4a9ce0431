"""The state size of a run: from its record, or computed from its config."""

import functools
import json

from lra.core import tasks
from lra.schema import identity
from lra.schema.result import Result


def of_run(run: Result) -> int | None:
  """Returns the numbers that one layer keeps from token to token.

  If a record of an earlier version lacks it, the mixer of this version computes
  it. The result is None if the mixer does not know it, or if this version
  cannot make the mixer.
  """
  if run.state_size is not None:
    return run.state_size
  config = identity.flatten(run.config)
  length = config.get('seq_len') or tasks.get(run.task).seq_len
  cls = config.get('encoder.pooling') == 'cls'
  try:
    return _computed(json.dumps(run.config.get('model'), sort_keys=True),
                     config.get('encoder.width'), length + cls)
  except Exception:  # a record's values may raise any error
    return None


@functools.lru_cache(maxsize=1000)
def _computed(model, width, length):
  # Imported late: it takes a second, and new records do not need it.
  from lra import models
  from lra.nn.mixer import state_size
  arguments = json.loads(model)
  mixer = models.mixer(arguments.pop('name'))
  return state_size(mixer(**arguments), width, length)
