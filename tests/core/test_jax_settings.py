"""JAX settings in the environment change no result of a run, or are recorded.
"""

import json
import os
import subprocess
import sys

import jax
import pytest

from lra.core import jax_settings, machine
from tests.helpers import tiny
from tests.helpers.paths import ROOT

VARIABLES = {'JAX_ENABLE_X64': '1', 'JAX_DEFAULT_PRNG_IMPL': 'rbg',
             'JAX_THREEFRY_PARTITIONABLE': '0', 'JAX_RANDOM_SEED_OFFSET': '7',
             'JAX_HIGH_DYNAMIC_RANGE_GUMBEL': '1',
             'FLAX_FIX_RNG_SEPARATOR': '1', 'JAX_DISABLE_JIT': '1'}
NO_FOLDER = ROOT / 'setup.cfg' / 'xla'


@pytest.fixture(scope='module')
def trained(mini_data, tmp_path_factory):
  """Returns a function that trains with given environment variables.

  It returns (test scores, recorded XLA flags, stderr). The model has dropout.
  """
  def run(**environment):
    folder = tmp_path_factory.mktemp('run')
    done = subprocess.run(
        [sys.executable, str(ROOT / 'run_lra.py'),
         '--config=configs/simpletron.py:listops_mini', f'--workdir={folder}',
         '--norecord', f'--compile_cache={NO_FOLDER}', *tiny.flags(**{
             'data_dir': mini_data, 'train.steps': 2, 'train.eval_every': 2,
             'train.eval_batch_size': 200, 'encoder.dropout': 0.1})],
        cwd=ROOT, text=True, capture_output=True, check=False,
        env={**os.environ, 'MPLBACKEND': 'nonsense', **environment})
    assert done.returncode == 0, done.stderr
    assert 'Warning' not in done.stderr
    assert f'{NO_FOLDER} cannot be written (Not a directory)' in done.stderr
    result = json.loads((folder / 'result.json').read_text())
    return result['test'], result['xla_flags'], done.stderr
  return run


@pytest.fixture(scope='module')
def plain(trained):
  return trained()


def test_a_key_draws_the_same_numbers_whatever_jax_is_told():
  code = ('import jax; from lra.core import jax_settings; jax_settings.fix();'
          'print(jax.random.normal(jax.random.key(3), (5,)).tolist())')
  done = subprocess.run(
      [sys.executable, '-c', code], cwd=ROOT, text=True, capture_output=True,
      check=True, env={**os.environ, **VARIABLES, 'PYTHONPATH': str(ROOT)})
  assert done.stdout.splitlines()[-1] == str(
      jax.random.normal(jax.random.key(3), (5,)).tolist())


@pytest.mark.full
@pytest.mark.parametrize('names', [
    tuple(VARIABLES), *((name,) for name in VARIABLES)])
def test_a_seed_gives_the_same_numbers_whatever_jax_is_told(
    trained, plain, names):
  test, flags, said = trained(**{name: VARIABLES[name] for name in names})
  assert test == plain[0] and flags == plain[1]
  assert all(f'{name}=' in said for name in names)
  assert jax_settings.NAMES[0].upper() not in plain[2]


def test_settings_that_say_where_something_is_are_not_recorded(monkeypatch):
  before = machine.xla_flags()
  for name in ('PLATFORMS', 'COMPILATION_CACHE_DIR', 'DUMP_IR_TO',
               'LOG_COMPILES', 'CUDA_VISIBLE_DEVICES', 'ENABLE_X64',
               'OF_NOBODY'):
    monkeypatch.setenv(f'JAX_{name}', '1')
  assert machine.xla_flags() == before
  monkeypatch.setenv('JAX_DEBUG_NANS', '0')
  assert machine.xla_flags() == [*before, 'JAX_DEBUG_NANS=False']
