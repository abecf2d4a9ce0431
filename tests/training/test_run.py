"""Run directories: identity, rewinding, damage."""

import copy
import importlib
import json

import pytest

import small
from lra import identity
from lra.errors import UserError
from lra.training import run

CONFIG = {'seed': 0, 'task': 'listops', 'data_dir': '',
          'train': {'steps': 5, 'batch_size': 4}}


def test_hash_ignores_seed_and_machine():
  same = dict(CONFIG, seed=3, data_dir='elsewhere')
  assert identity.config_hash(same) == identity.config_hash(CONFIG)
  other = dict(CONFIG, train={'steps': 6, 'batch_size': 4})
  assert identity.config_hash(other) != identity.config_hash(CONFIG)


def _other(value):
  """Another value of the same type."""
  if isinstance(value, bool):
    return not value
  if isinstance(value, int | float):
    return value + 1
  if isinstance(value, str):
    return f'{value}x'
  return (*(value or ()), 'x')


@pytest.mark.parametrize('protocol', ['simpletron', 'lra'])
def test_every_field_but_seed_and_data_dir_changes_the_hash(protocol):
  for path in sorted(small.CONFIGS.glob('[a-z]*.py')):
    module = importlib.import_module(f'configs.{path.stem}')
    config = module.get_config(f'listops_mini,protocol={protocol}').to_dict()
    silent = set()
    for field, value in identity.flatten(config).items():
      changed = copy.deepcopy(config)
      *groups, name = field.split('.')
      place = changed
      for group in groups:
        place = place[group]
      place[name] = _other(value)
      if identity.config_hash(changed) == identity.config_hash(config):
        silent.add(field)
    assert silent == {'seed', 'data_dir'}, path.stem


def test_another_config_is_refused_naming_the_fields(tmp_path):
  run.Run(tmp_path / 'run', CONFIG).close()
  run.Run(tmp_path / 'run', dict(CONFIG, data_dir='moved')).close()
  other = dict(CONFIG, seed=1, train={'steps': 6, 'batch_size': 4})
  with pytest.raises(UserError, match=r'differs in seed, train\.steps'):
    run.Run(tmp_path / 'run', other)


def test_a_directory_in_use_is_refused(tmp_path):
  made = run.Run(tmp_path, CONFIG)
  with pytest.raises(UserError, match='Another process'):
    run.Run(tmp_path, CONFIG)
  made.close()
  run.Run(tmp_path, CONFIG)


def test_rewind_drops_later_lines_and_a_torn_one(tmp_path):
  made = run.Run(tmp_path, CONFIG)
  for step in (1, 2, 3):
    made.log(step=step, loss=0.5)
  with open(made.metrics_path, 'a') as f:
    f.write('{"step": 2, "lo')
  made.rewind(2)
  lines = made.metrics_path.read_text().splitlines()
  assert [json.loads(line)['step'] for line in lines] == [1, 2]


@pytest.mark.parametrize('name', ['config.json', 'result.json'])
def test_damaged_files_are_named(tmp_path, name):
  made = run.Run(tmp_path, CONFIG)
  made.close()
  (tmp_path / name).write_text('{"torn')
  with pytest.raises(UserError, match=f'{name} is damaged'):
    made.result() if name == 'result.json' else run.Run(tmp_path, CONFIG)
