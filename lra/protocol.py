"""Which settings of a run are not those of its protocol."""

import functools
import pathlib
from typing import Any

from configs import base
from lra import config_flag, identity, place


def changes(config: dict, made_by: str) -> dict[str, Any]:
  """What a config changes: {dotted field: the protocol's value}.

  A protocol says what every model has: steps, rates, sizes, length, pooling,
  head. The other arguments of a mixer are as its config file makes them.

  Args:
    config: the whole config, as plain values.
    made_by: what --config said: file and task of the config.

  Raises:
    UserError: the protocol does not exist, or knows nothing of the task.
  """
  said = base.settings(config['task'], config['protocol'])
  return identity.changes(config, {**_own(made_by), **said})


@functools.lru_cache(maxsize=1)
def _own(made_by):
  """The arguments that a config file gives its mixer, by dotted name.

  As this process has read it first: the file may change while its runs last.
  """
  made = config_flag.made_by([f'--config={made_by}'])
  return identity.flatten({
      'model': made.copy_and_resolve_references().to_dict().get('model', {})})


def of_task(task: str) -> list[str]:
  """Names of the protocols that a task has, the one it takes first."""
  return [name for name, known in base.PROTOCOLS.items() if task in known]


def file_of(made_by: str) -> pathlib.Path:
  """The file that --config named."""
  return place.config_file(place.config_parts(made_by)[0])
