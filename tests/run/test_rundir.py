"""Tests run directories: identity, rewinding, damage."""

import json

import pytest

from lra.core.errors import UserError
from lra.run import rundir

CONFIG = {'seed': 0, 'task': 'listops', 'data_dir': '',
          'train': {'steps': 5, 'batch_size': 4}}


def test_another_config_is_refused_naming_the_fields(tmp_path):
  rundir.RunDirectory(tmp_path / 'run', CONFIG).close()
  rundir.RunDirectory(tmp_path / 'run', dict(CONFIG, data_dir='moved')).close()
  other = dict(CONFIG, seed=1, train={'steps': 6, 'batch_size': 4})
  with pytest.raises(UserError, match=r'differs in seed, train\.steps'):
    rundir.RunDirectory(tmp_path / 'run', other)


def test_a_directory_in_use_is_refused(tmp_path):
  made = rundir.RunDirectory(tmp_path, CONFIG)
  with pytest.raises(UserError, match='Another process'):
    rundir.RunDirectory(tmp_path, CONFIG)
  made.close()
  rundir.RunDirectory(tmp_path, CONFIG)


def test_rewind_drops_what_comes_again_and_a_torn_line(tmp_path):
  made = rundir.RunDirectory(tmp_path, CONFIG)
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


@pytest.mark.parametrize('content', [
    '{}', '[]', '3', 'null', '{"task": "a", "model": 3}',
    '{"task": "a", "model": {"name": []}}', 99999 * '['])
def test_a_foreign_config_is_one_sentence(tmp_path, content):
  (tmp_path / 'config.json').write_text(content)
  with pytest.raises(UserError, match='config.json is (not|damaged)'):
    rundir.RunDirectory(tmp_path, CONFIG)


@pytest.mark.parametrize('line', [
    '[]', '3', '{"step": "a", "split": "val"}', '{"step": 1, "split": []}',
    '{"split": "val"}', '{"step": 1, "split": "dev"}', 99999 * '[', '\x00',
    '{"step": {}, "split": "train"}', ''])
def test_odd_metrics_are_dropped_and_that_is_said(tmp_path, line, capfd):
  made = rundir.RunDirectory(tmp_path, CONFIG)
  made.log(step=1, split='train', loss=0.5)
  with open(made.metrics_path, 'a') as f:
    f.write(line + '\n')
  made.log(step=2, split='train', loss=0.5)
  made.rewind(2, validated_step=0)
  points = [json.loads(x) for x in made.metrics_path.read_text().splitlines()]
  assert [p['step'] for p in points] == [1, 2]
  assert 'metrics.jsonl' in (said := capfd.readouterr().err) and '2' in said


def test_rewind_keeps_one_of_two_equal_lines(tmp_path):
  made = rundir.RunDirectory(tmp_path, CONFIG)
  for _ in range(2):
    made.log(step=1, split='train', loss=0.5)
  made.rewind(2, validated_step=0)
  assert made.metrics_path.read_text().count('\n') == 1


def test_a_folder_in_the_place_of_the_metrics_is_named(tmp_path):
  made = rundir.RunDirectory(tmp_path, CONFIG)
  made.metrics_path.mkdir()
  with pytest.raises(UserError, match='metrics.jsonl'):
    made.rewind(0, validated_step=0)
