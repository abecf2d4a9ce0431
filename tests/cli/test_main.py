"""Tests the command line: runs, their records, and errors."""

import hashlib
import json
import re
import shutil

import pytest

from lra.many import execute
from tests.helpers import commands, committed, tiny
from tests.helpers.commands import assert_one_sentence
from tests.helpers.paths import ROOT

MINI = '--config=configs/simpletron.py:listops_mini'
TINY = [MINI, *tiny.flags(**{'train.steps': 4})]


def _run(*flags, cwd=ROOT):
  return commands.run('run_lra', *flags, cwd=cwd)


@pytest.mark.full
def test_run_directory_of_another_config(mini_data, tmp_path):
  flags = [*TINY, f'--config.data_dir={mini_data}', '--norecord',
           f'--workdir={tmp_path / "run"}']
  assert _run(*flags).returncode == 0
  before = (tmp_path / 'run' / 'result.json').read_bytes()
  assert_one_sentence(_run(*flags, '--config.train.weight_decay=0.2'),
                'train.weight_decay', '--workdir')
  again = _run(*flags)
  assert again.returncode == 0 and 'finished already' in again.stdout
  assert (tmp_path / 'run' / 'result.json').read_bytes() == before


@pytest.mark.full
def test_unwritable_directory(mini_data, tmp_path):
  file = tmp_path / 'file'
  file.touch()
  assert_one_sentence(
      _run(*TINY, f'--config.data_dir={mini_data}',
           f'--workdir={file / "run"}'), 'Cannot write', '--workdir')


@pytest.mark.full
def test_truncated_data(mini_data, tmp_path):
  shutil.copytree(mini_data, tmp_path / 'data')
  shard = next((tmp_path / 'data').rglob('*train*array_record*'))
  shard.write_bytes(shard.read_bytes()[:1000])
  assert_one_sentence(
      _run(*TINY, f'--config.data_dir={tmp_path / "data"}',
           f'--workdir={tmp_path / "run"}'), 'damaged', 'delete')


@pytest.mark.full
def test_a_damaged_result_keeps_no_other_seed_from_training(
    mini_data, tmp_path):
  """The damaged file is named; the other seeds train, and have a mean."""
  command = [*TINY, f'--config.data_dir={mini_data}', '--norecord',
             '--seeds=0-2']
  first = _run(*command, '--max_minutes=0', cwd=tmp_path)
  assert first.returncode == execute.EXIT['stopped'], first.stderr
  assert first.stdout.count('not begun: ') == 3
  folder = first.stdout.split('not begun: ')[2].split()[0]
  damaged = tmp_path / folder / 'result.json'
  damaged.parent.mkdir(parents=True)
  damaged.write_text('{}')
  done = _run(*command, cwd=tmp_path)
  assert done.returncode == 2 and 'Traceback' not in done.stderr
  assert done.stderr.splitlines()[-1].startswith(f'error: {folder}/result')
  assert done.stdout.count('ok: ') == 2 and '2 seeds: test' in done.stdout


def test_divergence(mini_data, tmp_path):
  done = _run(*TINY, f'--config.data_dir={mini_data}', '--norecord',
              '--config.train.learning_rate=1e30',
              '--config.train.warmup_steps=0', f'--workdir={tmp_path}')
  assert done.returncode == execute.EXIT['diverged'], done.stderr
  assert 'Traceback' not in done.stderr and 'learning_rate' in done.stdout


@pytest.mark.full
def test_a_run_that_changes_its_protocol_is_recorded_on_request(
    mini_data, tmp_path):
  results, page = tmp_path / 'results', tmp_path / 'page.md'
  place = [f'--results_dir={results}', f'--page={page}']
  flags = [*TINY, f'--config.data_dir={mini_data}', *place,
           f'--workdir={tmp_path / "run"}']
  done = _run(*flags)
  assert done.returncode == 0, done.stderr
  last = done.stdout.splitlines()[-1]
  for word in ('Not on the leaderboard', 'train.steps 4 instead of 4000',
               'encoder.width 16 instead of 64', '--record'):
    assert word in last
  assert not results.exists() and not page.exists()

  late = _run(*flags, '--profile=2:3')
  assert late.returncode == 2 and 'is too late' in late.stderr
  assert 'Traceback' not in late.stderr
  done = _run(*flags, '--record')
  assert done.returncode == 0 and 'finished already' in done.stdout
  record, = (results / 'runs').rglob('*.json')
  kept = json.loads(record.read_text())
  assert kept['changes']['train.steps'] == 4000
  for kind, name in (('model', 'lra/models'), ('config', 'configs')):
    source = (ROOT / name / 'simpletron.py').read_bytes()
    assert kept[f'{kind}_sha256'] == hashlib.sha256(source).hexdigest()
  text = (tmp_path / 'page' / 'listops_mini.md').read_text('utf-8')
  row = text.split('## Protocol `simpletron`, settings changed\n')[
      1].splitlines()[5]
  assert row.startswith(
      '| 1 | [simpletron, steps 4, width 16](mechanisms/simpletron.md) | ')
  assert 'train.steps 4 instead' in row

  page.unlink()
  record.write_text(record.read_text()[:100])
  done = _run('board', *place)
  assert done.returncode == 0, done.stderr
  assert f'left out: runs/listops_mini/{record.name}: ' in done.stderr
  assert f'* `runs/listops_mini/{record.name}`: it is damaged' in (
      page.read_text())


def test_a_run_of_its_protocol_is_recorded_unasked(mini_data, tmp_path):
  """The run is an already finished one; training would take half a minute."""
  flags = [MINI, f'--config.data_dir={mini_data}',
           f'--results_dir={tmp_path / "results"}',
           f'--page={tmp_path / "page.md"}', f'--workdir={tmp_path / "run"}']
  kept, = committed.records('listops_mini', 'simpletron')
  (tmp_path / 'run').mkdir()
  result = json.loads(kept.read_text())
  result['config']['data_dir'] = str(mini_data)
  (tmp_path / 'run' / 'result.json').write_text(json.dumps(result))
  (tmp_path / 'run' / 'config.json').write_text(json.dumps(result['config']))
  done = _run(*flags, '--norecord')
  assert done.returncode == 0 and not (tmp_path / 'results').exists()
  done = _run(*flags)
  assert done.returncode == 0, done.stderr
  assert 'Not on the leaderboard' not in done.stdout
  record, = (tmp_path / 'results').rglob('*.json')
  assert record.name == kept.name
  assert json.loads(record.read_text())['changes'] == {}
  assert '| 1 | [simpletron](mechanisms/simpletron.md) |' in (
      tmp_path / 'page' / 'listops_mini.md').read_text()
  # If the run directory holds another run's result, that is not published.
  result['config']['train']['weight_decay'] = 0.2
  (tmp_path / 'run' / 'result.json').write_text(json.dumps(result))
  assert_one_sentence(_run(*flags), 'result.json', 'train.weight_decay')


@pytest.mark.full
@pytest.mark.parametrize('flag, word', [
    ('results_dir', 'results_dir'), ('page', 'page')])
def test_where_nothing_can_be_recorded_nothing_is_trained(
    tmp_path, flag, word):
  (tmp_path / 'file').touch()
  assert_one_sentence(
      _run(MINI, f'--{flag}={tmp_path / "file" / "x"}',
           f'--workdir={tmp_path / "run"}'), f'--{word}')
  assert not (tmp_path / 'run').exists()


def test_list():
  done = _run('list')
  assert done.returncode == 0
  for name in ('transformer', 'simpletron_resl', 'listops_mini'):
    assert name in done.stdout
  lines = done.stdout.splitlines()
  assert 'parameters on listops (protocol simpletron)' in lines[0]
  # D = 512 in 8 heads: keys and values, and sums of keys (docs/glossary.md).
  assert any(re.match(r'linear_transformer .*2006\.16236 .* 33,280  O\(', line)
             for line in lines)
  assert any(re.match(r'image .* 10 classes  Image +lra, nystrom\b', line)
             for line in lines)
