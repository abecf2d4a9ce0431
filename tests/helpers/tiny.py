"""The smallest run that trains, for commands in processes of their own."""

import importlib.util
import os
import pathlib

import pytest

# libtpu writes to stderr if it finds no TPU.
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec('libtpu') is None,
    reason='libtpu is not installed')

_FIELDS = {
    'seq_len': 24, 'encoder.num_layers': 1, 'encoder.width': 16,
    'encoder.mlp_width': 16, 'model.qkv_width': 16, 'model.num_heads': 2,
    'train.batch_size': 4, 'train.microbatch_size': 4}


def flags(**changes) -> list[str]:
  """Returns --config.<field>=<value> flags; arguments add or replace."""
  return [f'--config.{name}={value}'
          for name, value in (_FIELDS | changes).items()]


def words(**changes) -> str:
  """Returns these fields as the words of a line of a sweep."""
  return ' '.join(
      f'{name}={value}' for name, value in (_FIELDS | changes).items())


def without_platforms() -> dict[str, str]:
  """Returns an environment without JAX's choice of platforms."""
  env = {name: value for name, value in os.environ.items()
         if name not in ('JAX_PLATFORMS', 'XLA_FLAGS')}
  return {**env, 'PYTHONPATH': str(pathlib.Path(__file__).parents[2])}
