"""Tests that killed runs resume and give the same result."""

import os
import random
import subprocess
import sys

import pytest

from tests.helpers import same_run, tiny
from tests.helpers.paths import ROOT


def _command(folder, data_dir, cache):
  return [
      sys.executable, 'run_lra.py', '--norecord', f'--workdir={folder}',
      f'--compile_cache={cache}',
      '--config=configs/simpletron.py:listops_mini',
      *tiny.flags(**{
          'data_dir': data_dir, 'train.eval_batch_size': 4,
          'train.steps': 120, 'train.eval_every': 20, 'train.log_every': 10,
          'train.checkpoint_minutes': 0.001})]


def _run(command, **kwargs):
  return subprocess.Popen(
      command, cwd=ROOT, env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **kwargs)


def _kill_when(process, condition):
  """Sends SIGKILL when `condition()` is true; returns whether it was sent."""
  while process.poll() is None:
    if condition():
      process.kill()
      process.communicate()
      return True
  process.communicate()
  return False


def _writing(folder):
  return any((folder / 'checkpoints').glob('*/*tmp*'))


@pytest.mark.full
def test_kill_9_anywhere_changes_nothing(mini_data, tmp_path):
  whole, broken = tmp_path / 'whole', tmp_path / 'broken'
  cache = tmp_path / 'cache'
  process = _run(_command(whole, mini_data, cache))
  _, errors = process.communicate()
  assert process.returncode == 0, errors

  command = _command(broken, mini_data, cache)
  # Kill once while a checkpoint is written, then at a random moment.
  torn = _kill_when(_run(command), lambda: _writing(broken))
  assert torn and _writing(broken)
  rng = random.Random(0)
  metrics = broken / 'metrics.jsonl'
  before = metrics.read_text().count('\n') if metrics.exists() else 0
  enough = before + rng.randrange(2, 12)
  _kill_when(_run(command), lambda: (
      metrics.exists() and metrics.read_text().count('\n') >= enough))
  process = _run(command)
  _, errors = process.communicate()
  assert process.returncode == 0, errors
  c = same_run.config(mini_data, batch_size=4)
  same_run.check(whole, broken, c, 1)
