"""Tests of signals and closed streams; each starts a process."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from lra.core import files, signals
from tests.helpers import tiny
from tests.helpers.paths import ROOT

_BEGIN = (
    'import signal\n'
    'from lra.core import signals, streams\n'
    'streams.keep(); signals.listen()\n')
# Makes stdin the controlling terminal, then executes the command.
_LEAD = ('import fcntl, os, sys, termios\n'
         'fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n'
         'os.execv(sys.argv[1], sys.argv[1:])\n')
# Keeps the main thread in C code, so that no Python signal handler runs.
_BUSY = ('import hashlib\n'
         'def busy(): hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**8)\n')
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


def _start(code, **options):
  """Starts a process and waits until its `code` prints 'ready'."""
  process = subprocess.Popen(
      [sys.executable, '-c', _BEGIN + code], env=_ENV, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
  assert process.stdout.readline() == 'ready\n', process.stderr.read()
  return process


def _end(process):
  """Returns (exit code, lines of stderr)."""
  _, errors = process.communicate(timeout=60)
  return process.returncode, [x for x in errors.split('\n') if x.strip()]


@pytest.mark.parametrize('number', [
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_has_begun_nothing_ends_at_once(number):
  process = _start(_BUSY + 'print("ready"); busy()')
  process.send_signal(number)
  code, lines = _end(process)
  assert code == signals.STOPPED
  assert len(lines) == 1 and number.name in lines[0]


def test_work_is_told_and_a_second_ctrl_c_ends_it():
  """The process receives both while its main thread is in C code."""
  process = _start(_BUSY + (
      'with signals.later("after this step"):\n  print("ready"); busy()'))
  process.send_signal(signal.SIGTERM)
  told = next(x for x in process.stderr if x.strip())
  assert 'SIGTERM: will stop after this step' in told
  process.send_signal(signal.SIGTERM)  # only a second SIGINT ends it at once
  time.sleep(0.2)
  assert process.poll() is None
  process.send_signal(signal.SIGINT)
  code, lines = _end(process)
  assert code == signals.INTERRUPTED and len(lines) == 1


def test_work_looks_at_the_reason():
  process = _start(
      'import time\n'
      'with signals.later("soon"):\n'
      '  print("ready")\n'
      '  while not signals.reason(): time.sleep(0.01)\n'
      'raise SystemExit(3)')
  process.send_signal(signal.SIGHUP)
  assert _end(process)[0] == 3


def test_what_is_interrupted_tidies_up(tmp_path):
  process = _start(
      'import fcntl\n'
      'f = open("lock", "w"); g = open("lock", "w"); fcntl.flock(f, 2)\n'
      'try:\n'
      '  with signals.interrupting():\n'
      '    print("ready"); fcntl.flock(g, 2)\n'  # waits for ever
      'except signals.Stop:\n'
      '  print("tidied"); raise SystemExit(signals.STOPPED)', cwd=tmp_path)
  process.send_signal(signal.SIGTERM)
  out, _ = process.communicate(timeout=60)
  assert process.returncode == signals.STOPPED and 'tidied' in out


def test_an_interruption_that_is_swallowed_comes_again():
  """Python drops an exception raised in a callback of the garbage collector.

  JAX has such a callback.
  """
  process = _start(
      'import gc, time\n'
      'def callback(*_): print("ready"); time.sleep(1)\n'
      'try:\n'
      '  with signals.interrupting():\n'
      '    gc.callbacks.append(callback); gc.collect(); gc.callbacks.clear()\n'
      '    time.sleep(60)\n'
      'except signals.Stop:\n'
      '  raise SystemExit(signals.STOPPED)')
  process.send_signal(signal.SIGTERM)
  code, lines = _end(process)
  assert code == signals.STOPPED and len(lines) == 1, lines


def test_short_work_is_not_left_half_done(tmp_path):
  process = _start(
      'import pathlib, time\n'
      'with signals.unbroken():\n'
      '  print("ready")\n'
      '  while not signals.reason(): time.sleep(0.01)\n'
      '  pathlib.Path("done").touch()\n'
      'time.sleep(60)', cwd=tmp_path)
  process.send_signal(signal.SIGINT)
  assert _end(process)[0] == signals.STOPPED
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


@pytest.mark.every(2)
@pytest.mark.parametrize('closed', ['2>&-', '>&-', '>&- 2>&- <&-'])
def test_a_file_does_not_take_the_place_of_a_closed_stream(closed, tmp_path):
  code = _BEGIN + (
      'import os, sys\n'
      'file = open("file", "w")\n'
      'print("out"); print("err", file=sys.stderr); os.write(1, b"C out")\n'
      'os.write(2, b"C err")\n')
  done = subprocess.run(
      f"{sys.executable} -c '{code}' {closed}", shell=True, cwd=tmp_path,
      env=_ENV, check=False, capture_output=True, text=True)
  assert done.returncode == 0
  assert 'Traceback' not in done.stderr + done.stdout
  assert (tmp_path / 'file').read_text() == ''


def test_a_closed_pipe_is_no_error():
  process = _start('import time\nprint("ready"); input()\n'
                   'for _ in range(9): print(9999 * "x")',
                   stdin=subprocess.PIPE)
  process.stdout.close()
  process.stdin.write('go on\n')
  process.stdin.close()
  errors = process.stderr.read()
  assert (process.wait(), errors) == (0, '')


def _to_a_full_disk(*command, stream='stdout'):
  with open('/dev/full', 'w') as full:
    return subprocess.run(
        [sys.executable, *map(str, command)], env=_ENV, text=True, cwd=ROOT,
        **{'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, stream: full})


@pytest.mark.every(2)
@pytest.mark.parametrize('program', [
    ('run_lra.py', '--help'), ('-m', 'data_prep', '--help'),
    ('-m', 'tools', '--help')])
def test_a_full_disk_under_stdout_is_one_sentence(program):
  done = _to_a_full_disk(*program)
  assert done.returncode == 2 and done.stderr.startswith('error: ')
  assert done.stderr.count('\n') == 1 and 'No space left' in done.stderr


@pytest.mark.full
@pytest.mark.parametrize('asked', [
    ('list',), ('compare', *sorted(
        (ROOT / 'lra/results/runs/listops_mini').glob('transformer-*'))[:2])])
def test_an_answer_to_a_full_disk_is_one_sentence(asked):
  done = _to_a_full_disk('run_lra.py', *asked)
  assert done.returncode == 2 and 'No space left' in done.stderr
  assert 'Traceback' not in done.stderr


def test_output_is_lost_once_it_was_said():
  done = _to_a_full_disk('-c', _BEGIN + (
      'import sys\nfrom lra.core.errors import UserError\n'
      'try: print("a")\n'
      'except UserError as e: print(e, file=sys.stderr)\n'
      'print(9999 * "b", flush=True)\n'))
  assert done.returncode == 0 and done.stderr.count('\n') == 1


def test_messages_that_find_no_room_end_nothing():
  done = _to_a_full_disk('-c', _BEGIN + (
      'import sys\nprint("a", file=sys.stderr)\nprint("b")'), stream='stderr')
  assert (done.returncode, done.stdout) == (0, 'b\n')


@contextlib.contextmanager
def _in_a_terminal(command, **options):
  """Context with (process, terminal) of a command run in a new terminal."""
  terminal, theirs = os.openpty()
  process = subprocess.Popen(
      [sys.executable, '-c', _LEAD, *command], stdin=theirs, stdout=theirs,
      stderr=theirs, start_new_session=True, **options)
  os.close(theirs)
  try:
    yield process, terminal
  finally:
    process.kill()
    process.wait()


def test_a_closed_terminal_asks_for_a_checkpoint_and_ends_nothing(tmp_path):
  code = _BEGIN + (
      'import pathlib, time\n'
      'print("ready")\n'
      'while not signals.hang_ups(): time.sleep(0.01)\n'
      'print("nobody reads this")\n'
      'assert not signals.reason() and signals.hang_ups() == 1\n'
      'pathlib.Path("done").touch()\n')
  with _in_a_terminal([sys.executable, '-c', code], cwd=tmp_path,
                      env=_ENV) as (process, terminal):
    assert b'ready' in os.read(terminal, 100)
    os.close(terminal)
    assert process.wait(timeout=60) == 0
  assert (tmp_path / 'done').exists()


def test_ctrl_c_twice_in_a_terminal():
  code = _BEGIN + _BUSY + (
      'with signals.later("after this step"):\n  print("ready"); busy()')
  with _in_a_terminal([sys.executable, '-c', code],
                      env=_ENV) as (process, terminal):
    shown = b''
    for word in (b'ready', b'SIGINT: will stop after this step'):
      while word not in shown:
        shown += os.read(terminal, 1000)
      os.write(terminal, b'\x03')
    assert process.wait(timeout=60) == signals.INTERRUPTED


def test_what_a_failed_checkpoint_leaves_undone_is_not_shown():
  """Late errors of asyncio and Orbax are hidden, and all others are shown."""
  code = ('from lra.cli import command\n'
          'command.quiet_libraries()\n'
          'class Late:\n'
          '  def __init__(self, what): self.what = what\n'
          '  def __del__(self): raise RuntimeError(self.what)\n'
          'Late("Event loop is closed"); Late("something else")\n'
          'reading = """async def read(other):\n'
          '  try: await other\n'
          '  finally: raise RuntimeError("late")"""\n'
          'class Other:\n'
          '  def __await__(self): yield\n'
          'for library in "orbax", "tidy":\n'
          '  names = {}\n'
          '  exec(compile(reading, f"/{library}/read.py", "exec"), names)\n'
          '  names["read"](Other()).send(None)')
  done = subprocess.run([sys.executable, '-c', code], env=_ENV, text=True,
                        capture_output=True, check=True)
  assert 'something else' in done.stderr and 'loop' not in done.stderr
  assert '/tidy/' in done.stderr and '/orbax/' not in done.stderr


_TINY = {'train.eval_batch_size': 100, 'train.eval_every': 50,
         'train.log_every': 10}


@pytest.fixture(scope='module')
def place(tmp_path_factory):
  """Makes a folder with the configs; its runs share a compilation cache."""
  folder = tmp_path_factory.mktemp('place')
  (folder / 'configs').symlink_to(ROOT / 'configs')
  return folder


def _flags(place, data, name, **changes):
  """Returns the command of a run that writes everything to `place/name`."""
  results = place / name / 'results'
  results.mkdir(parents=True)
  shutil.copy(ROOT / 'lra/results/published.csv', results)
  fields = {**_TINY, 'data_dir': data, 'train.steps': 100, **changes}
  return [
      sys.executable, str(ROOT / 'run_lra.py'), '--record',
      f'--results_dir={results}',
      f'--workdir={place / name / "run"}', f'--page={place / name / "page.md"}',
      f'--compile_cache={place / "cache"}',
      '--config=configs/simpletron.py:listops_mini',
      *tiny.flags(**fields)]


def _finished(place, name):
  """Returns whether the run has finished and is recorded and on the page."""
  result = files.read_json(place / name / 'run' / 'result.json')
  return result and result['status'] == 'ok' and len(
      list((place / name / 'results' / 'runs').rglob('*.json'))) == 1 and (
          'simpletron' in (place / name / 'page.md').read_text())


@pytest.mark.full
@pytest.mark.parametrize('end', ['| true', '2>&-', '>&-', '>&- 2>&- <&-'])
def test_a_run_whose_streams_are_closed_is_recorded(end, place, mini_data):
  command = shlex.join(_flags(place, mini_data, name := f'closed {end}'))
  done = subprocess.run(
      ['bash', '-o', 'pipefail', '-c', f'{command} {end}'], cwd=place,
      env=_ENV, check=False, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert 'Traceback' not in done.stderr
  assert _finished(place, name)


def _wait_for(path, process):
  while not path.exists():
    assert process.poll() is None
    time.sleep(0.01)


@pytest.mark.full
def test_a_run_whose_terminal_is_closed_is_recorded(place, mini_data):
  command = _flags(place, mini_data, 'terminal', **{'train.steps': 2000})
  folder = place / 'terminal' / 'run'
  with _in_a_terminal(command, cwd=place, env=_ENV) as (process, terminal):
    reader = threading.Thread(target=_drain, args=(terminal,), daemon=True)
    reader.start()
    _wait_for(folder / 'metrics.jsonl', process)
    assert not list(folder.glob('checkpoints/last/[0-9]*'))
    os.close(terminal)
    while not list(folder.glob('checkpoints/last/[0-9]*')):
      assert process.poll() is None
      time.sleep(0.01)
    assert process.wait(timeout=300) == 0
  assert _finished(place, 'terminal')


def _drain(terminal):
  with contextlib.suppress(OSError):
    while os.read(terminal, 1000):
      pass


def _training(place, data, name):
  """Starts a long run without a terminal and waits until it trains."""
  process = subprocess.Popen(
      _flags(place, data, name, **{'train.steps': 10**6}), cwd=place, env=_ENV,
      text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      start_new_session=True)
  _wait_for(place / name / 'run' / 'metrics.jsonl', process)
  return process


@pytest.mark.full
def test_hang_up_without_a_terminal_checkpoints_and_stops(place, mini_data):
  process = _training(place, mini_data, 'hup')
  process.send_signal(signal.SIGHUP)
  _, errors = process.communicate()
  assert process.returncode == signals.STOPPED
  assert 'SIGHUP: will stop' in errors and 'stopped at step' in errors
  result = files.read_json(place / 'hup' / 'run' / 'result.json')
  assert result['status'] == 'stopped' and (
      place / f'hup/run/checkpoints/last/{result["steps"]}').is_dir()


@pytest.mark.full
def test_a_second_ctrl_c_in_training_shows_no_traceback(place, mini_data):
  process = _training(place, mini_data, 'twice')
  process.send_signal(signal.SIGINT)
  assert any('SIGINT: will stop' in line for line in process.stderr)
  process.send_signal(signal.SIGINT)
  _, errors = process.communicate()
  assert process.returncode == signals.INTERRUPTED
  assert 'Stopped at once' in errors and 'Traceback' not in errors


@pytest.mark.full
@pytest.mark.parametrize('number', [
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_sweep_passes_signals_on(number, place, mini_data):
  folder = place / number.name
  folder.mkdir()
  (folder / 'configs').symlink_to(ROOT / 'configs')
  changes = tiny.words(**_TINY, **{'train.steps': 10**6})
  (folder / 'sweep.txt').write_text(
      f'configs/simpletron.py:listops_mini seeds=0-1 {changes}')
  process = subprocess.Popen(
      [sys.executable, str(ROOT / 'run_lra.py'), '--sweep=sweep.txt',
       '--norecord', f'--compile_cache={place / "cache"}'], cwd=folder,
      env={**_ENV, 'TFDS_DATA_DIR': str(mini_data)}, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
  while not list(folder.glob('runs/*/*/*/metrics.jsonl')):
    assert process.poll() is None
    time.sleep(0.01)
  process.send_signal(number)
  out, errors = process.communicate()
  assert process.returncode == signals.STOPPED, errors
  assert 'stopped' in out and '0 of 2 runs' in out
  assert 'Traceback' not in errors
