"""Tests of bad starts, of lost processes, and of stops that all agree on."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from lra.core import distributed, signals
from lra.core.distributed import SharedStop
from lra.core.errors import USER_ERROR, UserError
from tests.helpers import commands
from tests.helpers.paths import ROOT
from tests.helpers.processes import free_port

_ENV = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT),
        'TF_CPP_MIN_LOG_LEVEL': '2'}


@pytest.mark.parametrize('coordinator', [
    'host0', 'host0:', ':8476', 'host0:abc', 'host0:0', 'host0:65536',
    'host0:99999', 'http://host0:8476', 'host 0:8476', '::1:8476', '8476'])
def test_a_coordinator_of_another_form_is_named(coordinator):
  with pytest.raises(UserError, match='--coordinator=.* is not HOST:PORT'):
    distributed.check(coordinator, None, None)


def _command(port, count, process, host='127.0.0.1'):
  return [f'--config={ROOT}/configs/simpletron.py:listops_mini',
          '--distributed', f'--coordinator={host}:{port}',
          f'--num_processes={count}', f'--process_id={process}']


@pytest.mark.full
@pytest.mark.parametrize('starts, words', [
    ([(2, 2)], ['--process_id=2 is too large for --num_processes=2']),
    ([(2, 0)], ['did not meet in time']),
    ([(2, 1)], ['did not meet in time']),
    ([(3, 0), (3, 1), (3, 1)], ['did not meet in time'] * 3),
    ([(2, 0), (3, 1)],
     ['--num_processes is 2 for process 0 and 3 for process 1'] * 2)],
    ids=['number', 'no other', 'no leader', 'twice', 'count'])
def test_a_bad_start_is_one_sentence_within_a_minute(starts, words, tmp_path):
  port, began = free_port(), time.monotonic()
  processes = [subprocess.Popen(
      [sys.executable, str(ROOT / 'run_lra.py'), *_command(port, *start)],
      env=_ENV, text=True, stderr=subprocess.PIPE, cwd=tmp_path)
      for start in starts]
  for process, word in zip(processes, words, strict=True):
    line, = process.communicate()[1].splitlines()
    assert line.startswith('error: --') and word in line
    assert process.returncode == USER_ERROR
  assert time.monotonic() - began < 60
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('host, word', [
    ('127.0.0.1', 'in use'), ('nobody.invalid', 'no address')])
def test_a_used_port_and_an_unknown_host_are_known_before_jax(
    host, word, tmp_path):
  with socket.create_server(('127.0.0.1', 0)) as taken:
    commands.assert_one_sentence(commands.run(
        'run_lra', *_command(taken.getsockname()[1], 2, 0, host),
        cwd=tmp_path), '--coordinator', word)


_ABORT = 'ctypes.CDLL(None).abort()'
_LOST = 'os.write(2, b"JAX distributed service: task died\\n@ 0x1 stack\\n")\n'


@pytest.mark.parametrize('code, ends, said', [
    ('signals._say("signal")', 0, ['python', 'signal', 'native']),
    ('distributed.leave(0)', 0, ['python', 'native']),
    ('os.ftruncate(2, 0)\ndistributed.state["met"] = True\n' + _LOST + _ABORT,
     signals.STOPPED, ['python', 'error: another process of this run']),
    ('os.ftruncate(2, 0)\n' + _LOST + _ABORT,
     USER_ERROR, ['python', 'error: --distributed: the processes did not']),
    (_ABORT, -signal.SIGABRT, ['python', 'native']),
    ('distributed.abandon(ValueError("gone"))', signals.STOPPED,
     ['python', 'error: another process of this run has ended (gone)'])],
    ids=['end', 'leave', 'lost', 'not met', 'other', 'abandon'])
def test_a_stack_is_shown_only_if_no_process_is_lost(code, ends, said):
  done = subprocess.run(
      [sys.executable, '-c', (
          'import ctypes, os, sys\n'
          'from lra.core import distributed, signals\n'
          'distributed.hold_stderr()\n'
          'os.write(2, b"native\\n"); print("python", file=sys.stderr)\n'
          + code)], capture_output=True, text=True, check=False, env=_ENV)
  lines = [line for line in done.stderr.splitlines() if line.strip()]
  assert done.returncode == ends
  assert len(lines) == len(said), lines
  for line, words in zip(lines, said, strict=True):
    assert line.strip().startswith(words)


class _Own:
  """Stand-in for the `StopRequest` of one process."""
  reason = ''

  def checkpoint(self, due):
    return due


@pytest.mark.parametrize('due_after, asked_at, saves, last', [
    (20, None, [24, 48, 72, 96], None), (None, 10, [], 13)])
def test_all_save_and_stop_after_the_answer(due_after, asked_at, saves, last):
  """An answer arrives two steps after its request; each save is made once."""
  own, made, sent, stopped = _Own(), [], [], None
  stop = SharedStop(own, lambda wishes, after: wishes)
  for step in range(100):
    if stop.reason:
      stopped = step
      break
    own.reason = 'SIGTERM' if step == asked_at else own.reason
    if stop.checkpoint(bool(due_after) and step - [0, *made][-1] > due_after):
      made.append(step)
    sent.append(stop.ask(step))
    if len(sent) > 2:
      stop.hear(sent.pop(0))
  assert (made, stopped) == (saves, last)
  assert stop.reason == ('SIGTERM' if last else '')
