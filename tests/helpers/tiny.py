"""Makes the flags of the smallest run that trains, for tests of commands."""

import importlib.util
import os
import pathlib

import pytest

# For tests that libtpu prints no message if it finds no TPU.
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec('libtpu') is None,
    reason='libtpu is not installed')

_FIELDS = {
    'seq_len': 24, 'encoder.num_layers': 1, 'encoder.width': 16,
    'encoder.mlp_width': 16, 'model.qkv_width': 16, 'model.num_heads': 2,
    'train.batch_size': 4, 'train.microbatch_size': 4}


def flags(**changes) -> list[str]:
  """Returns --config.<field>=<value> flags; `changes` adds or replaces fields.
  """
  return [f'--config.{name}={value}'
          for name, value in (_FIELDS | changes).items()]


def table(**changes) -> str:
  """Returns an inline table for `set` of a file of runs; see `flags`."""
  return '{' + ', '.join(
      f'"{name}" = {value if isinstance(value, int | float) else repr(value)}'
      for name, value in (_FIELDS | changes).items()) + '}'


def without_platforms() -> dict[str, str]:
  """Returns the environment without JAX_PLATFORMS and XLA_FLAGS."""
  env = {name: value for name, value in os.environ.items()
         if name not in ('JAX_PLATFORMS', 'XLA_FLAGS')}
  return {**env, 'PYTHONPATH': str(pathlib.Path(__file__).parents[2])}
