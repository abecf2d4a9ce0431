"""Run directories: identity, rewinding, damage."""

import json

import pytest

from lra.errors import UserError
from lra.training import run

CONFIG = {'seed': 0, 'task': 'listops', 'data_dir': '',
          'train': {'steps': 5, 'batch_size': 4}}


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


def test_rewind_drops_what_comes_again_and_a_torn_line(tmp_path):
  made = run.Run(tmp_path, CONFIG)
  for step in (1, 2, 3):
    for split in ('train', 'val'):
      made.log(step=step, split=split, loss=0.5)
  made.log(step=2, split='test', loss=0.5)
  with open(made.metrics_path, 'a') as f:
    f.write('{"step": 2, "lo')
  made.rewind(2, validated_step=1)
  points = [json.loads(line) for line in
            made.metrics_path.read_text().splitlines()]
  assert [(p['split'], p['step']) for p in points] == [
      ('train', 1), ('val', 1), ('train', 2)]


@pytest.mark.parametrize('name', ['config.json', 'result.json'])
def test_damaged_files_are_named(tmp_path, name):
  made = run.Run(tmp_path, CONFIG)
  made.close()
  (tmp_path / name).write_text('{"torn')
  with pytest.raises(UserError, match=f'{name} is damaged'):
    made.result() if name == 'result.json' else run.Run(tmp_path, CONFIG)
