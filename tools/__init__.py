"""Tools of developers, which are not installed: `python -m tools --help`."""

import importlib


def config_of(model: str, argument: str):
  """Returns a copy of the config `configs/<model>.py:<argument>`, to change."""
  return importlib.import_module(f'lra.configs.{model}').get_config(
      argument).copy_and_resolve_references()
