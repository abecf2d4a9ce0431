import importlib

from lra.core import machine

machine.skip_tpu()  # the modules here are commands, and import JAX


def config_of(model: str, argument: str):
  """Returns a copy of the config `configs/<model>.py:<argument>`, to change."""
  return importlib.import_module(f'lra.configs.{model}').get_config(
      argument).copy_and_resolve_references()
