"""Tests the checks of a record that is to be sent."""

import copy
import hashlib
import json

import pytest

from lra.board import submission
from lra.cli import main
from lra.core import machine, paths
from lra.core.errors import UserError
from lra.schema import identity, result

# Folder of committed records.
FOLDER = paths.PACKAGED / 'runs' / 'listops_mini'
COMMIT, CODE = 'a' * 40, b'class Mixer'


@pytest.fixture(scope='module')
def record():
  """Returns a committed record as if it were made by an unmodified checkout."""
  path = next(path for path in sorted(FOLDER.glob('transformer-*-s0.json'))
              if (found := json.loads(path.read_text())).get('changes') == {}
              and found['test'].get('correct'))
  fields = json.loads(path.read_text())
  fields.pop('git_commits', None)
  return {**fields, 'git_commit': COMMIT, 'git_dirty': False,
          'model_sha256': hashlib.sha256(CODE).hexdigest()}


@pytest.fixture(autouse=True)
def _checkout(monkeypatch):
  """Has two commits with one file; the first of them is published."""
  known = {COMMIT: True, 'b' * 40: False}
  monkeypatch.setattr(machine, 'is_commit', known.__contains__)
  monkeypatch.setattr(machine, 'published', known.get)
  monkeypatch.setattr(machine, 'file_at', lambda commit, path: (
      CODE if path == 'lra/models/transformer.py' else None))


def _put(fields, folder):
  """Writes a record under the name of its run; returns its path."""
  model, seed = fields['config']['model']['name'], fields['config']['seed']
  path = folder / 'runs' / fields['task'] / (
      f'{model}-{identity.config_hash(fields["config"])}-s{seed}.json')
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(json.dumps(fields))
  return path


def _failed(path, folder):
  return {one.name: one.what for one in submission.check(path, folder)
          if not one.passed}


def test_a_record_that_can_be_sent_passes_every_check(record, tmp_path):
  path = _put(record, tmp_path)
  assert not _failed(path, tmp_path)
  assert len(submission.check(path, tmp_path)) == 8


def _with(record, name, value):
  changed = copy.deepcopy(record)
  group = changed
  for part in name.split('.')[:-1]:
    group = group[part]
  group[name.split('.')[-1]] = value
  return changed


@pytest.mark.parametrize('field, value, check, words', [
    ('test.accuracy', 0.9, 'form', 'test'),
    ('test.correct', '', 'scores', 'which test examples'),
    ('status', 'stopped', 'scores', 'stopped'),
    ('config.train.learning_rate', 0.5, 'settings', 'train.learning_rate 0.5'),
    ('changes', {'train.warmup_steps': 7}, 'settings', 'train.warmup_steps'),
    ('changes', None, 'settings', 'does not list'),
    ('git_commit', 'c' * 40, 'code', 'cccccccc is not in this clone'),
    ('git_commit', '--help', 'code', 'is not in this clone'),
    ('git_commit', 'b' * 40, 'code', 'not on the published branch'),
    ('git_commits', [COMMIT, 'b' * 40], 'code', 'not on the published branch'),
    ('git_commit', None, 'code', 'no commit'),
    ('git_dirty', True, 'code', 'modified'),
    ('model_sha256', 'f' * 64, 'code', 'transformer.py of its commit'),
    ('data_fingerprint', 'f' * 16, 'data', 'data ffffffff'),
    ('config.data_dir', '/home/me', 'privacy', 'paths'),
])
def test_a_fault_fails_its_check_only(
    record, tmp_path, field, value, check, words):
  path = _put(_with(record, field, value), tmp_path)
  failed = _failed(path, tmp_path)
  assert list(failed) == [check] and words in failed[check]


def test_a_model_or_protocol_of_nobody_is_named(record, tmp_path):
  unknown = copy.deepcopy(record)
  unknown['model'] = unknown['config']['model']['name'] = 'nobody'
  unknown['protocol'] = unknown['config']['protocol'] = 'nowhere'
  path = _put(unknown, tmp_path)
  said = [one.what for one in submission.check(path, tmp_path)
          if one.name == 'settings' and not one.passed]
  assert 'protocol nowhere' in said[0] and 'model nobody' in said[1]


def test_a_copy_of_another_seed_is_found(record, tmp_path):
  _put(record, tmp_path)
  twin = _with(_with(record, 'seed', 7), 'config.seed', 7)
  failed = _failed(_put(twin, tmp_path), tmp_path)
  assert list(failed) == ['others'] and 'loss and the answers' in (
      failed['others'])


def test_a_second_record_of_a_run_is_found(record, tmp_path):
  _put(record, tmp_path)
  again = _put({**record, 'train_seconds': 1.0}, tmp_path / 'mine')
  assert list(_failed(again, tmp_path)) == ['others']
  other_name = again.with_name('result.json')
  again.rename(other_name)
  assert set(_failed(other_name, tmp_path)) == {'name', 'others'}


def _run(path, folder):
  return main.main(['board', f'--check={path}', f'--results_dir={folder}'])


def test_the_command_prints_what_passed_and_what_failed(
    record, tmp_path, capsys):
  assert _run(_put(record, tmp_path), tmp_path) == 0
  said = capsys.readouterr()
  assert said.out.count('ok ') == 8 and not said.err
  bad = _put({**record, 'git_dirty': True, 'changes': None}, tmp_path)
  assert _run(bad, tmp_path) == 2
  said = capsys.readouterr()
  assert said.out.count('ok ') == 6
  assert [line.split(': ')[:2] for line in said.err.splitlines()] == [
      ['error', 'settings'], ['error', 'code']]
  with pytest.raises(UserError, match='nowhere'):
    _run(tmp_path / 'nowhere.json', tmp_path)


def test_the_records_that_others_left_out_are_not_charged(record, tmp_path):
  """A record that was left out before does not fail a new one."""
  _put(record, tmp_path)
  twin = _with(_with(record, 'seed', 7), 'config.seed', 7)
  _put(twin, tmp_path)
  new = _with(_with(record, 'seed', 8), 'config.seed', 8)
  new['test']['loss'] += 0.25
  path = _put(new, tmp_path)
  assert result.read(path).seed == 8 and not _failed(path, tmp_path)
