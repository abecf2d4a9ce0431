"""Tests the processes of a sweep: their deadline, and compiling ahead."""

import os
import subprocess
import sys
import time

import pytest

from lra.core import machine
from lra.many import ahead, runner, sweep
from tests.helpers import tiny
from tests.helpers.paths import ROOT


def _entries(folder, *names):
  return [sweep.Entry((f'--config={name}', '--config.seed=0'), folder / name,
                      line) for line, name in enumerate(names)]


def test_a_process_is_told_at_the_deadline(tmp_path, monkeypatch):
  """Even a process that does not stop itself, as while compiling, is ended."""
  program = tmp_path / 'program.py'
  program.write_text('import time; time.sleep(60)')
  monkeypatch.setattr(runner, '_RUN', program)
  began = time.monotonic()
  assert runner.run(_entries(tmp_path, 'a', 'b'), max_minutes=0.02)
  assert time.monotonic() - began < 30


@pytest.mark.parametrize('known, expected', [
    (None, ['a']), (100.0, ['a']), (1.0, ['a', 'b'])])
def test_what_could_not_even_compile_is_not_begun(
    tmp_path, monkeypatch, capsys, known, expected):
  made, now = [], [0.0]
  monkeypatch.setattr(runner.time, 'monotonic', lambda: now[0])

  def call(flag, *_, **__):
    made.append(flag.removeprefix('--config='))
    now[0] += 50
    return 75

  monkeypatch.setattr(runner, '_call', call)
  assert runner.run(_entries(tmp_path, 'a', 'b', 'c'), max_minutes=1.2,
                    compiling=lambda entry: known)
  assert made == expected
  assert ('is not begun' in capsys.readouterr().out) is (len(made) == 1)


class _Helper:
  """Replaces `ahead.Helper`; notes the flags of the runs to compile."""
  asked = []

  def __init__(self, *_):
    self.compiled = set()

  def begin(self, key, flags):
    self.asked.append(flags)
    self.compiled.add(key)

  def finish(self, deadline):
    pass


def test_the_next_run_is_compiled_while_one_trains(tmp_path, monkeypatch):
  """Lines of the sweep that share a compiled step are compiled once."""
  monkeypatch.setattr(runner.ahead, 'Helper', _Helper)
  monkeypatch.setattr(_Helper, 'asked', [])
  asked = []
  monkeypatch.setattr(
      runner, '_call', lambda *_, **__: asked.append(len(_Helper.asked)) or 0)
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  monkeypatch.chdir(tmp_path)
  config = 'configs/simpletron.py:listops'
  (tmp_path / 'sweep.txt').write_text(
      f'{config}_mini\n{config}_mini seeds=1\n'
      f'{config} train.learning_rate=[0.1,0.2]\n{config} train.steps=7')
  runner.run(sweep.read(tmp_path / 'sweep.txt'), compile_ahead=True,
             extra=('--norecord', '--compile_cache=x'))
  assert _Helper.asked == [
      (f'--config={config}', '--compile_cache=x'),
      (f'--config={config}', '--compile_cache=x'),
      (f'--config={config}', '--config.train.steps=7', '--compile_cache=x')]
  assert asked == [1, 2, 3, 3]


@pytest.mark.parametrize('device, cores, taken, expected', [
    ('', 2, None, False), ('', 4, None, True), ('NVIDIA H200', 1, None, True),
    ('NVIDIA H200', 1, 'false', True), ('NVIDIA H200', 16, 'true', False),
    ('TPU', 16, None, False)])
def test_where_it_would_be_slow_nothing_is_compiled_ahead(
    monkeypatch, device, cores, taken, expected):
  monkeypatch.setattr(machine, 'accelerator', lambda: device)
  monkeypatch.setattr(machine, 'cpu_count', lambda: cores)
  name = 'XLA_PYTHON_CLIENT_PREALLOCATE'
  monkeypatch.delenv(name, raising=False)
  if taken:
    monkeypatch.setenv(name, taken)
  assert runner.may_compile_ahead() is expected


def test_a_helper_that_fails_is_one_line(tmp_path, capsys):
  program = tmp_path / 'program.py'
  program.write_text('import sys; sys.exit("traceback")')
  helper = ahead.Helper((str(program),), dict(os.environ))
  helper.begin('a', ())
  helper.finish(time.monotonic() + 60)
  said = capsys.readouterr()
  assert not helper.compiled and len(said.err.splitlines()) == 1
  program.write_text('')
  helper.begin('a', ())
  helper.finish(time.monotonic() + 60)
  assert helper.compiled == {'a'} and not capsys.readouterr().err
  program.write_text('import time; time.sleep(60)')
  helper.begin('b', ())
  helper.finish(time.monotonic() + 0.1)
  assert helper.compiled == {'a'}


def _run(folder, data_dir, *more):
  subprocess.run(
      [sys.executable, str(ROOT / 'run_lra.py'), '--norecord',
       '--config=configs/simpletron.py:listops_mini', '--compile_cache=cache',
       f'--config.data_dir={data_dir}', '--config.train.steps=2', *more],
      cwd=folder, check=True, capture_output=True, text=True, env={
          **tiny.without_platforms(), 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''})


@pytest.mark.full
def test_a_run_finds_what_was_compiled_for_it(mini_data, tmp_path):
  """After --compile_only, the run compiles neither of its two steps again."""
  _run(tmp_path, mini_data, '--compile_only')
  assert not list(tmp_path.glob('runs/**/*.json'))
  compiled = {path.name for path in (tmp_path / 'cache').glob('*-cache')}
  steps = {name.rpartition('-')[0].rpartition('-')[0] for name in compiled}
  assert {'jit_update'} <= steps and len(compiled) == 2
  _run(tmp_path, mini_data)
  added = {path.name for path in (tmp_path / 'cache').glob('*-cache')}
  assert not {name for name in added - compiled
              if name.startswith(tuple(steps))}
  assert list(tmp_path.glob('runs/*/*/*/result.json'))
