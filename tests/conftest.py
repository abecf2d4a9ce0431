"""Four CPU devices for everyone, and one small prepared data set."""

import os
import pathlib

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')

import jax
import pytest

jax.config.update('jax_num_cpu_devices', 4)


@pytest.fixture(scope='session')
def mini_data(tmp_path_factory) -> pathlib.Path:
  """A data directory with `listops_mini` prepared."""
  import data_prep
  folder = tmp_path_factory.mktemp('data')
  data_prep.prepare('listops_mini', folder)
  return folder
