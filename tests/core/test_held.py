"""Tests of `lra.core.held`, which delays what libraries write to stderr."""

import os
import signal
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

_LOST = 'os.write(2, b"JAX distributed service: task died\\n@ 0x1 stack\\n")\n'
_OTHER = 'os.write(2, b"Check failed: a == b\\n")\n'


def _run(code, *options):
  """Runs `code` after `held.begin()`; returns (exit code, stderr)."""
  done = subprocess.run(
      [sys.executable, *options, '-c', (
          'import ctypes, os, signal, sys, time\n'
          'from lra.core import distributed, held, signals\n'
          'held.begin()\n'
          'ctypes.CDLL(None).signal(signal.SIGABRT, distributed._aborted)\n'
          f'{code}')], capture_output=True, text=True, check=False, timeout=60,
      env={**os.environ, 'PYTHONPATH': str(ROOT)})
  return done.returncode, done.stderr


@pytest.mark.parametrize('end', ['', 'distributed.leave(0)', 'time.sleep(4)'])
def test_all_is_shown_in_the_end_or_after_a_moment(end):
  code, said = _run(
      'os.write(2, b"native\\n"); print("python", file=sys.stderr)\n'
      'signals._say("signal")\n' + end)
  assert code == 0
  assert [line.strip() for line in said.split()] == [
      'python', 'signal', 'native']


def test_a_moment_is_all_that_it_is_held_back():
  code, said = _run(
      'os.write(2, b"native\\n"); time.sleep(4)\n'
      'os.kill(os.getpid(), signal.SIGKILL)')
  assert (code, said) == (-signal.SIGKILL, 'native\n')


@pytest.mark.parametrize('met, code', [(True, 75), (False, 2)])
def test_the_stack_of_a_lost_process_is_not_shown(met, code):
  ended, said = _run(
      f'distributed._state["met"] = {met}\n{_LOST}'
      'ctypes.CDLL(None).abort()')
  assert ended == code
  line, = said.splitlines()
  assert line.startswith('error: ') and 'start all of them' in line


def test_the_abort_of_something_else_is_shown():
  code, said = _run(
      f'distributed._state["met"] = True\n{_OTHER}ctypes.CDLL(None).abort()')
  assert (code, said) == (-signal.SIGABRT, 'Check failed: a == b\n')


def test_a_crash_shows_its_traceback():
  code, said = _run('ctypes.string_at(0)', '-X', 'faulthandler')
  assert code == -signal.SIGSEGV and 'Segmentation fault' in said
