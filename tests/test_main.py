"""The command line: what a user gets wrong is one sentence."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from lra import command, main

ROOT = pathlib.Path(__file__).parent.parent
MINI = '--config=configs/simpletron.py:listops_mini'
TINY = [
    MINI, '--config.seq_len=24', '--config.encoder.num_layers=1',
    '--config.encoder.width=16', '--config.encoder.mlp_width=16',
    '--config.model.qkv_width=16', '--config.model.num_heads=2',
    '--config.train.batch_size=4', '--config.train.microbatch_size=4',
    '--config.train.steps=4']


def _run(*flags, cwd=ROOT):
  return subprocess.run(
      [sys.executable, str(ROOT / 'run_lra.py'), *flags], cwd=cwd, text=True,
      capture_output=True, check=False,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)})


def _one_sentence(done, *words):
  assert done.returncode == command.USER_ERROR, done.stderr
  lines = [x for x in done.stderr.splitlines() if x.strip()]
  assert len(lines) == 1 and lines[0].startswith('error: '), done.stderr
  for word in words:
    assert word in lines[0]


@pytest.mark.parametrize('flags,words', [
    ([], ['--config', '--list']),
    (['--config=configs/nobody.py:listops'], ['configs/<model>.py']),
    (['--config=configs/nobody.py:listops', '--config.seed=1'],
     ['configs/<model>.py']),
    (['--config=configs/simpletron.py:listop'], ["'listop'", 'text_mini']),
    (['--config=configs/simpletron.py:listops,protocol=x'], ['protocol=x']),
    ([MINI, '--config.train.stepz=3'], ['stepz', 'steps']),
    ([MINI, '--config.train.steps=many'], ['many']),
    ([MINI, '--config.model.name=nobody'], ["'nobody'", 'transformer']),
    ([MINI, '--config.task=nothing'], ["'nothing'", 'listops']),
    ([MINI, '--config.train.microbatch_size=7'], ['microbatch_size=7', '32']),
    ([MINI, '--config.model.num_heads=7'], ['num_heads=7', '64']),
    ([MINI, '--config.model.qkv_width=32'], ['qkv_width=32', '64']),
    ([MINI, '--config.encoder.pooling=max'], ["'max'", 'mean']),
    ([MINI, '--config.dtype=float8'], ["'float8'", 'bfloat16']),
    ([MINI, '--config.model.kernel=pallas_gpu'], ['pallas_gpu', 'xla']),
    ([MINI, '--config.train.steps=0'], ['train.steps=0']),
    ([MINI, '--config.seq_len=9999'], ['seq_len=9999']),
    ([MINI, '--nonsense'], ['nonsense']),
])
def test_bad_input_is_one_sentence(flags, words, tmp_path):
  folder = tmp_path / 'run'
  _one_sentence(_run(*flags, f'--workdir={folder}'), *words)
  assert not folder.exists() or not any(folder.iterdir())


def test_run_directory_of_another_config(mini_data, tmp_path):
  flags = [*TINY, f'--config.data_dir={mini_data}', '--norecord',
           f'--workdir={tmp_path / "run"}']
  assert _run(*flags).returncode == 0
  before = (tmp_path / 'run' / 'result.json').read_bytes()
  _one_sentence(_run(*flags, '--config.train.weight_decay=0.2'),
                'train.weight_decay', '--workdir')
  again = _run(*flags)
  assert again.returncode == 0 and 'finished already' in again.stdout
  assert (tmp_path / 'run' / 'result.json').read_bytes() == before


def test_unwritable_directory(mini_data, tmp_path):
  file = tmp_path / 'file'
  file.touch()
  _one_sentence(
      _run(*TINY, f'--config.data_dir={mini_data}',
           f'--workdir={file / "run"}'), 'Cannot write', '--workdir')


def test_truncated_data(mini_data, tmp_path):
  shutil.copytree(mini_data, tmp_path / 'data')
  shard = next((tmp_path / 'data').rglob('*train*array_record*'))
  shard.write_bytes(shard.read_bytes()[:1000])
  _one_sentence(
      _run(*TINY, f'--config.data_dir={tmp_path / "data"}',
           f'--workdir={tmp_path / "run"}'), 'damaged', 'delete')


def test_divergence(mini_data, tmp_path):
  done = _run(*TINY, f'--config.data_dir={mini_data}', '--norecord',
              '--config.train.learning_rate=1e30',
              '--config.train.warmup_steps=0', f'--workdir={tmp_path}')
  assert done.returncode == main.EXIT['diverged'], done.stderr
  assert 'Traceback' not in done.stderr and 'learning_rate' in done.stdout


def _results(tmp_path):
  folder = tmp_path / 'results'
  folder.mkdir()
  shutil.copy(ROOT / 'lra' / 'results' / 'published.csv', folder)
  return folder


def test_finished_run_gets_its_row(mini_data, tmp_path):
  results, page = _results(tmp_path), tmp_path / 'page.md'
  flags = [f'--results_dir={results}', f'--page={page}']
  done = _run(*TINY, f'--config.data_dir={mini_data}', *flags,
              f'--workdir={tmp_path / "run"}')
  assert done.returncode == 0, done.stderr
  text = page.read_text()
  assert 'simpletron' in text.split('Published results')[0]
  page.unlink()
  assert _run('--leaderboard', *flags).returncode == 0
  assert page.read_text() == text
  record = next((results / 'runs').rglob('*.json'))
  record.write_text(record.read_text()[:100])
  _one_sentence(_run('--leaderboard', *flags), record.name)
  assert page.read_text() == text


def test_list():
  done = _run('--list')
  assert done.returncode == 0
  for name in ('transformer', 'simpletron_resl', 'listops_mini'):
    assert name in done.stdout
