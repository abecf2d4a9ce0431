"""Finds the settings of a run that differ from its protocol."""

import functools
import pathlib
from typing import Any

from configs import base
from lra import paths
from lra.config import identity
from lra.experiment import loader


def changes(config: dict, made_by: str) -> dict[str, Any]:
  """Returns the fields a config changes: {dotted field: the protocol's value}.

  A protocol sets the fields that every model has: steps, learning rate, sizes,
  length, pooling, head. The other arguments of a mixer count as changed if they
  differ from its config file.

  Args:
    config: the whole config, as plain values.
    made_by: the value of --config: file and task of the config.

  Raises:
    UserError: the protocol does not exist, or does not have the task.
  """
  said = base.settings(config['task'], config['protocol'])
  return identity.changes(config, {**_own(made_by), **said})


@functools.lru_cache(maxsize=1)
def _own(made_by):
  """Returns the arguments that a config file gives its mixer, by dotted name.

  They are cached, since the file may change while its runs last.
  """
  made = loader.made_by([f'--config={made_by}'])
  return identity.flatten({
      'model': made.copy_and_resolve_references().to_dict().get('model', {})})


def of_task(task: str) -> list[str]:
  """Returns the names of the protocols of a task, the default first."""
  return [name for name, known in base.PROTOCOLS.items() if task in known]


def file_of(made_by: str) -> pathlib.Path:
  """Returns the file that --config named."""
  return paths.config_file(paths.config_parts(made_by)[0])
