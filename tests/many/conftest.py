"""A checkout in a new folder, and commands that are killed there."""

import os
import subprocess
import sys
import time

import pytest

from tests.helpers.paths import ROOT


@pytest.fixture
def here(tmp_path, monkeypatch):
  """Returns a folder, the current one, that has the configs."""
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  monkeypatch.chdir(tmp_path)
  return tmp_path


@pytest.fixture
def broken_and_whole(tmp_path):
  """Returns a function that trains twice, and kills one of the trainings.

  Its arguments are those of run_lra.py, the text of a.toml, and the numbers of
  runs with a log at which it is killed (kill -9). It returns both folders, and
  (exit code, stdout, stderr) of the last command in each.
  """
  def start(folder, arguments, text, environment):
    folder.mkdir(exist_ok=True)
    if not (folder / 'configs').exists():
      (folder / 'configs').symlink_to(ROOT / 'configs')
    (folder / 'a.toml').write_text(text)
    return subprocess.Popen(
        [sys.executable, str(ROOT / 'run_lra.py'), *arguments, '--record',
         '--results_dir=results', f'--compile_cache={tmp_path / "xla"}'],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT),
             **environment})

  def train(arguments, kills, text='', **environment):
    folders, ends = (tmp_path / 'broken', tmp_path / 'whole'), []
    for folder, logs in zip(folders, (kills, ()), strict=True):
      for count in logs:
        process = start(folder, arguments, text, environment)
        while len(list(folder.glob('runs/*/*/*/metrics.jsonl'))) < count:
          assert process.poll() is None, process.communicate()
          time.sleep(0.01)
        process.kill()
        process.communicate(timeout=20)  # ends once its child has ended, too
      process = start(folder, arguments, text, environment)
      out, errors = process.communicate()
      ends.append((process.returncode, out, errors))
    return *folders, ends

  return train
