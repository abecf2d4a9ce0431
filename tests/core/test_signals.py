"""Tests of signals and closed streams; each starts a process."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from lra.core import files, signals, terminal
from tests.helpers import tiny
from tests.helpers.paths import ROOT

_BEGIN = (
    'import fcntl, gc, hashlib, os, pathlib, signal, sys, time\n'
    'from lra.core import signals, streams\n'
    'streams.keep(); signals.listen()\n'
    # Keeps the main thread in C code, so that no Python signal handler runs.
    'def busy(): hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**8)\n')
# Makes stdin the controlling terminal, then executes the command.
_LEAD = ('import fcntl, os, sys, termios\n'
         'fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n'
         'os.execv(sys.argv[1], sys.argv[1:])\n')
_ENV = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)}


@pytest.fixture(autouse=True)
def heard():
  """Sets handlers, so that the child processes of a test ignore no signal.

  Children inherit ignored signals, such as those of nohup or a shell's `&`.
  """
  before = {number: signal.signal(number, lambda *_: None)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
  yield
  for number, handler in before.items():
    signal.signal(number, handler)


_AT_ONCE = 'print("ready"); busy()'
_LATER = 'with signals.later("after this step"):\n  print("ready"); busy()'
_LOOKS = ('with signals.later("soon"):\n'
          '  print("ready")\n'
          '  while not signals.reason(): time.sleep(0.01)\n'
          'raise SystemExit(3)')
# Waits for ever in a call of the system.
_TIDIES = ('f = open("lock", "w"); g = open("lock", "w"); fcntl.flock(f, 2)\n'
           'try:\n'
           '  with signals.interrupting(): print("ready"); fcntl.flock(g, 2)\n'
           'except signals.Stop:\n'
           '  pathlib.Path("done").touch(); raise SystemExit(signals.STOPPED)')
# Python drops an exception raised in the garbage collector, as JAX's callback.
_COLLECTS = (
    'def callback(*_): print("ready"); time.sleep(1)\n'
    'try:\n'
    '  with signals.interrupting():\n'
    '    gc.callbacks.append(callback); gc.collect(); gc.callbacks.clear()\n'
    '    time.sleep(60)\n'
    'except signals.Stop: raise SystemExit(signals.STOPPED)')
_UNBROKEN = ('with signals.unbroken():\n'
             '  print("ready")\n'
             '  while not signals.reason(): time.sleep(0.01)\n'
             '  pathlib.Path("done").touch()\n'
             'time.sleep(60)')


@pytest.mark.parametrize('code, numbers, ends, said', [
    *((_AT_ONCE, [number], signals.STOPPED, [f'{number.name}: stopped'])
      for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
    # Only a second SIGINT ends the work at once.
    (_LATER, [signal.SIGTERM, signal.SIGTERM, signal.SIGINT],
     signals.INTERRUPTED, ['SIGTERM: will stop after this step', 'at once']),
    (_LOOKS, [signal.SIGHUP], 3, ['SIGHUP: will stop soon']),
    (_TIDIES, [signal.SIGTERM], signals.STOPPED, ['in a moment']),
    (_COLLECTS, [signal.SIGTERM], signals.STOPPED, ['in a moment']),
    (_UNBROKEN, [signal.SIGINT], signals.STOPPED, ['in a moment'])],
    ids=['int', 'term', 'hup', 'later', 'looks', 'tidies', 'collects',
         'unbroken'])
def test_signals_act_as_the_work_allows(code, numbers, ends, said, tmp_path):
  process = subprocess.Popen(
      [sys.executable, '-c', _BEGIN + code], env=_ENV, text=True, cwd=tmp_path,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
  assert process.stdout.readline() == 'ready\n', process.stderr.read()
  for number in numbers:
    assert process.poll() is None
    process.send_signal(number)
    time.sleep(0.3 * (len(numbers) > 1))
  _, errors = process.communicate(timeout=60)
  assert process.returncode == ends
  lines = [x for x in errors.split('\n') if x.strip()]
  assert len(lines) == len(said), lines
  for line, words in zip(lines, said, strict=True):
    assert words in line
  assert (tmp_path / 'done').exists() == ('done' in code)


def test_a_closed_pipe_is_no_error():
  done = subprocess.run(
      ['bash', '-o', 'pipefail', '-c', f'{sys.executable} -c "$0" | true',
       _BEGIN + 'time.sleep(1)\nfor _ in range(9): print(9999 * "x")'],
      env=_ENV, check=False, capture_output=True, text=True)
  assert (done.returncode, done.stderr) == (0, '')


# Prints to a full disk: one error for stdout, then text is lost; none for
# stderr.
_PRINTS = _BEGIN + (
    'from lra.core.errors import UserError\n'
    'try: print("a")\n'
    'except UserError as e: print(e, file=sys.stderr)\n'
    'print(9999 * "b", flush=True)\n')


@pytest.mark.parametrize('stream, command, code, said', [
    ('stdout', ('run_lra.py', '--help'), 2, 'error: '),
    ('stdout', ('-m', 'lra.data_prep', '--help'), 2, 'error: '),
    ('stdout', ('-c', _PRINTS), 0, 'The output cannot be written (No space'),
    ('stderr', ('-c', _PRINTS), 0, 'a\nb'),
    *(pytest.param('stdout', command, 2, 'error: ', marks=pytest.mark.full)
      for command in (('-m', 'tools', '--help'), ('run_lra.py', 'list')))])
def test_a_full_disk_is_one_sentence(stream, command, code, said):
  with open('/dev/full', 'w') as full:
    done = subprocess.run(
        [sys.executable, *command], env=_ENV, text=True, cwd=ROOT,
        **{'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, stream: full})
  assert done.returncode == code
  if stream == 'stdout':
    assert done.stderr.startswith(said) and done.stderr.count('\n') == 1
    assert 'No space left' in done.stderr
  else:
    assert done.stdout.startswith(said)


@contextlib.contextmanager
def _in_a_terminal(command, **options):
  """Context with (process, terminal) of a command run in a new terminal."""
  shown, theirs = os.openpty()
  process = subprocess.Popen(
      [sys.executable, '-c', _LEAD, *command], stdin=theirs, stdout=theirs,
      stderr=theirs, start_new_session=True, env=_ENV, **options)
  os.close(theirs)
  try:
    yield process, shown
  finally:
    process.kill()
    process.wait()


def test_a_closed_terminal_asks_for_a_checkpoint_and_ends_nothing(tmp_path):
  code = _BEGIN + (
      'print("ready")\n'
      'while not signals.hang_ups(): time.sleep(0.01)\n'
      'print("nobody reads this")\n'
      'assert not signals.reason() and signals.hang_ups() == 1\n'
      'pathlib.Path("done").touch()\n')
  with _in_a_terminal([sys.executable, '-c', code],
                      cwd=tmp_path) as (process, shown):
    assert b'ready' in os.read(shown, 100)
    os.close(shown)
    assert process.wait(timeout=60) == 0
  assert (tmp_path / 'done').exists()


def test_what_was_ignored_stays_ignored():
  """A process whose SIGHUP was ignored at the start, as by nohup, survives it.
  """
  process = subprocess.Popen(
      [sys.executable, '-c', (
          'import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n'
          + _BEGIN + 'print("ready"); input()')], env=_ENV, text=True,
      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
  process.stdout.readline()
  process.send_signal(signal.SIGHUP)
  process.communicate('go on\n')
  assert process.returncode == 0


def test_each_run_hears_that_the_terminal_was_closed(monkeypatch):
  first, second = terminal.StopRequest(None), terminal.StopRequest(None)
  assert not first.checkpoint()
  monkeypatch.setattr(signals, 'hang_ups', lambda: 1)
  assert first.checkpoint() and second.checkpoint()
  assert not first.checkpoint() and not second.checkpoint()


@pytest.mark.full
@pytest.mark.parametrize('numbers, code, said', [
    ([signal.SIGHUP], signals.STOPPED, 'stopped at step'),
    ([signal.SIGINT, signal.SIGINT], signals.INTERRUPTED, 'Stopped at once')])
def test_a_run_without_a_terminal_stops(
    numbers, code, said, tmp_path, mini_data):
  folder = tmp_path / 'run'
  process = subprocess.Popen(
      [sys.executable, str(ROOT / 'run_lra.py'), '--norecord',
       f'--workdir={folder}', '--config=configs/simpletron.py:listops_mini',
       *tiny.flags(**{'data_dir': mini_data, 'train.steps': 10**6,
                      'train.log_every': 10})],
      cwd=ROOT, env=_ENV, text=True, stdout=subprocess.PIPE,
      stderr=subprocess.PIPE, start_new_session=True)
  while not (folder / 'metrics.jsonl').exists():
    assert process.poll() is None
    time.sleep(0.01)
  process.send_signal(numbers[0])
  assert any(f'{numbers[0].name}: will stop' in x for x in process.stderr)
  for number in numbers[1:]:
    process.send_signal(number)
  _, errors = process.communicate()
  assert process.returncode == code
  assert said in errors and 'Traceback' not in errors
  if code == signals.STOPPED:
    result = files.read_json(folder / 'result.json')
    assert result['status'] == 'stopped' and (
        folder / f'checkpoints/last/{result["steps"]}').is_dir()
