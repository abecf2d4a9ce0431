"""Run directories: identity, rewinding, damage."""

import copy
import importlib
import json

import pytest

import small
from lra import record
from lra.errors import UserError

CONFIG = {'seed': 0, 'task': 'listops', 'data_dir': '',
          'train': {'steps': 5, 'batch_size': 4}}


def test_hash_ignores_seed_and_machine():
  same = dict(CONFIG, seed=3, data_dir='elsewhere')
  assert record.config_hash(same) == record.config_hash(CONFIG)
  other = dict(CONFIG, train={'steps': 6, 'batch_size': 4})
  assert record.config_hash(other) != record.config_hash(CONFIG)


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
    for field, value in record.flatten(config).items():
      changed = copy.deepcopy(config)
      *groups, name = field.split('.')
      place = changed
      for group in groups:
        place = place[group]
      place[name] = _other(value)
      if record.config_hash(changed) == record.config_hash(config):
        silent.add(field)
    assert silent == {'seed', 'data_dir'}, path.stem


def test_another_config_is_refused_naming_the_fields(tmp_path):
  record.Run(tmp_path / 'run', CONFIG).close()
  record.Run(tmp_path / 'run', dict(CONFIG, data_dir='moved')).close()
  other = dict(CONFIG, seed=1, train={'steps': 6, 'batch_size': 4})
  with pytest.raises(UserError, match=r'differs in seed, train\.steps'):
    record.Run(tmp_path / 'run', other)


def test_a_directory_in_use_is_refused(tmp_path):
  run = record.Run(tmp_path, CONFIG)
  with pytest.raises(UserError, match='Another process'):
    record.Run(tmp_path, CONFIG)
  run.close()
  record.Run(tmp_path, CONFIG)


def test_rewind_drops_later_lines_and_a_torn_one(tmp_path):
  run = record.Run(tmp_path, CONFIG)
  for step in (1, 2, 3):
    run.log(step=step, loss=0.5)
  with open(run.metrics_path, 'a') as f:
    f.write('{"step": 2, "lo')
  run.rewind(2)
  lines = run.metrics_path.read_text().splitlines()
  assert [json.loads(line)['step'] for line in lines] == [1, 2]


@pytest.mark.parametrize('name', ['config.json', 'result.json'])
def test_damaged_files_are_named(tmp_path, name):
  run = record.Run(tmp_path, CONFIG)
  run.close()
  (tmp_path / name).write_text('{"torn')
  with pytest.raises(UserError, match=f'{name} is damaged'):
    run.result() if name == 'result.json' else record.Run(tmp_path, CONFIG)


def test_json_is_written_whole_or_not_at_all(tmp_path):
  path = tmp_path / 'x.json'
  record.write_json(path, {'a': 1})
  with pytest.raises(ValueError):
    record.write_json(path, {'a': float('nan')})
  assert record.read_json(path) == {'a': 1}
  assert [p.name for p in tmp_path.iterdir()] == ['x.json']
