"""Which settings of a run are not those of its protocol."""

import pathlib
from typing import Any

from absl import flags

from configs import base
from lra import config_flag, identity


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
  made = make([f'--config={made_by}']).to_dict()
  own = identity.flatten({'model': made.get('model', {})})
  return identity.changes(config, {**own, **said})


def file_of(made_by: str) -> pathlib.Path:
  """The file that --config named."""
  return pathlib.Path(made_by.split(':', 1)[0])


def make(arguments: list[str]):
  """The config that such a command line makes, --config and --config.*."""
  argv, values = ['protocol', *arguments], flags.FlagValues()
  config = config_flag.define(values, argv)
  values(argv)
  return config.value.copy_and_resolve_references()
