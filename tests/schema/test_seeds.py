"""Tests that several seeds of one command can be stopped, killed and resumed.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from lra.core import files
from lra.many import execute
from tests.helpers import tiny
from tests.helpers.paths import ROOT
from tests.helpers.processes import end

SEEDS = 3
pytestmark = pytest.mark.full


def _start(folder, data_dir, steps=300):
  folder.mkdir(exist_ok=True)
  return subprocess.Popen(
      [sys.executable, str(ROOT / 'run_lra.py'), f'--seeds=0-{SEEDS - 1}',
       '--at_once=2', '--norecord', '--compile_cache=xla',
       f'--config={ROOT}/configs/simpletron.py:listops_mini',
       *tiny.flags(**{
           'data_dir': data_dir, 'train.eval_batch_size': 100,
           'train.steps': steps, 'train.eval_every': 50, 'train.log_every': 10,
           'train.checkpoint_minutes': 0.01})],
      cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)})


def _logs(folder):
  """Returns {run: its log points}, without measured times."""
  return {path.parent.name: [
      {k: v for k, v in json.loads(line).items()
       if k not in ('seconds', 'examples_per_s')}
      for line in path.read_text().splitlines()]
      for path in folder.glob('runs/*/*/*/metrics.jsonl')}


def _wait_for_two(folder, process, lines):
  """Waits until two runs have logged at least `lines` lines."""
  while sum(len(log) >= lines for log in _logs(folder).values()) < 2:
    assert process.poll() is None, process.communicate()
    time.sleep(0.01)


def _scores(folder):
  return {path.parent.name: files.read_json(path)['test']
          for path in folder.glob('runs/*/*/*/result.json')}


@pytest.fixture(scope='module')
def whole(mini_data, tmp_path_factory):
  """Returns a folder with runs of all seeds that were not disturbed."""
  folder = tmp_path_factory.mktemp('whole')
  code, out, errors = end(_start(folder, mini_data))
  assert code == 0, errors
  assert f'{SEEDS} seeds: test accuracy' in out
  (folder / 'stderr').write_text(errors)
  return folder


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_what_was_ended_goes_on_to_the_same_end(
    mini_data, tmp_path, whole, number):
  process = _start(tmp_path, mini_data)
  _wait_for_two(tmp_path, process, 12)
  process.send_signal(number)
  code, out, errors = end(process)
  if number == signal.SIGTERM:
    assert code == execute.EXIT['stopped'], errors
    # Of two runs at once, one may have ended already, and the third begun.
    results = [files.read_json(p) for p in tmp_path.rglob('result.json')]
    stopped = [r for r in results if r['status'] == 'stopped']
    ended = [r for r in results if r['status'] == 'ok']
    assert len(stopped) + len(ended) == len(results) >= 2 > len(ended)
    assert len(stopped) <= 2 and all(r['steps'] < 300 for r in stopped)
    assert max(r['steps'] for r in stopped) > 0
    assert errors.count('(SIGTERM): the same command continues') == len(stopped)
    assert out.count('not begun: ') == SEEDS - len(results)
  assert _logs(tmp_path) != _logs(whole)
  code, _, errors = end(_start(tmp_path, mini_data))
  assert code == 0, errors
  assert _logs(tmp_path) == _logs(whole)
  assert _scores(tmp_path) == _scores(whole)
