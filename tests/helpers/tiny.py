"""The smallest run that trains, for commands in processes of their own."""

import importlib.util
import os
import pathlib

import pytest

# libtpu says on stderr that it finds no TPU; where there is one, all is well.
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec('libtpu') is None,
    reason='libtpu is not installed')

_FIELDS = {
    'seq_len': 24, 'encoder.num_layers': 1, 'encoder.width': 16,
    'encoder.mlp_width': 16, 'model.qkv_width': 16, 'model.num_heads': 2,
    'train.batch_size': 4, 'train.microbatch_size': 4}


def flags(**changes) -> list[str]:
  """--config.<field>=<value> of all fields, these besides or instead."""
  return [f'--config.{name}={value}'
          for name, value in (_FIELDS | changes).items()]


def words(**changes) -> str:
  """The same for a line of a sweep."""
  return ' '.join(
      f'{name}={value}' for name, value in (_FIELDS | changes).items())


def without_platforms() -> dict[str, str]:
  """The environment of a process that chooses its devices itself."""
  env = {name: value for name, value in os.environ.items()
         if name not in ('JAX_PLATFORMS', 'XLA_FLAGS')}
  return {**env, 'PYTHONPATH': str(pathlib.Path(__file__).parents[2])}
