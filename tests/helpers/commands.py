"""Runs commands of the project without importing everything each time.

One process imports everything once and forks for each command. The command then
runs as from a shell: with its own arguments, folder, environment and streams.
"""

import functools
import gc
import importlib
import json
import os
import pathlib
import pkgutil
import resource
import subprocess
import sys
import tempfile
import traceback
from typing import NamedTuple

from lra.cli.command import USER_ERROR
from tests.helpers.paths import ROOT

PROGRESS = ('reading', 'checking', 'storing', 'drawing')
# The environment before tests change it.
_ENVIRONMENT = dict(os.environ)
# Packages whose modules are imported before the first command.
_IMPORTED = ('lra.data_prep', 'lra.cli', 'lra.models', 'lra.nn',
             'lra.objectives', 'lra.schema', 'lra.board', 'lra.many', 'lra.run')
_LEFT_OUT = 'lra.data_prep.linear'  # imports scikit-learn
LONGEST = 60  # CPU seconds that a command may use


class Done(NamedTuple):
  """Result of a command: exit code (negative: a signal), stdout, stderr."""
  returncode: int
  stdout: str
  stderr: str


class Commands:
  """A process that forks for each command; `close` ends it."""

  def __init__(self):
    self._process = subprocess.Popen(
        [sys.executable, '-c',
         'from tests.helpers import commands; commands.serve()'], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        env={**_ENVIRONMENT, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)})

  def run(self, program: str, *arguments: str, cwd: pathlib.Path,
          **environment: str) -> Done:
    """Runs run_lra.py, or `python -m lra.data_prep`, in a folder.

    Args:
      program: 'run_lra' or 'data_prep'.
      *arguments: arguments of the command line.
      cwd: working directory.
      **environment: environment variables to set.
    """
    request = [program, arguments, str(cwd), environment]
    print(json.dumps(request), file=self._process.stdin, flush=True)
    return Done(*json.loads(self._process.stdout.readline()))

  def close(self) -> None:
    self._process.stdin.close()
    self._process.wait()


@functools.cache
def _shared() -> Commands:
  """Returns the forking process shared by all tests."""
  return Commands()


def run(program: str, *arguments: str, cwd: pathlib.Path = ROOT,
        **environment: str) -> Done:
  """Runs a command in the shared process; see `Commands.run`."""
  return _shared().run(program, *arguments, cwd=cwd, **environment)


def assert_one_sentence(done: Done, *words: str, code: int = USER_ERROR):
  """Asserts that a command failed with one error line containing `words`."""
  assert done.returncode == code, done
  lines = [line for line in done.stderr.splitlines()
           if line.strip() and not line.startswith(PROGRESS)]
  assert len(lines) == 1 and lines[0].startswith('error: '), done.stderr
  for word in words:
    assert word in lines[0], f'{word!r} is not in {lines[0]!r}'
  assert not done.stdout


def serve() -> None:
  """Forks for each request line of stdin; prints the result as JSON."""
  for room in _IMPORTED:
    package = importlib.import_module(room)
    for module in pkgutil.iter_modules(package.__path__, f'{room}.'):
      if module.name != _LEFT_OUT:
        importlib.import_module(module.name)
  gc.freeze()  # a collection in a child would copy the memory it shares
  for line in sys.stdin:
    program, arguments, cwd, environment = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
      child = os.fork()
      if not child:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        _become(program, arguments, cwd, environment)
      status = os.waitpid(child, 0)[1]
      texts = []
      for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read().decode(errors='replace'))
    print(json.dumps([os.waitstatus_to_exitcode(status), *texts]), flush=True)


def _become(program, arguments, cwd, environment):
  """Runs the command in this forked process."""
  code = 1
  try:
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
    os.chdir(cwd)
    os.environ.update(environment)
    sys.argv = [program, *arguments]
    if program == 'data_prep':
      from lra.data_prep import __main__ as data
      code = data.main()
    else:
      import lra.cli.main
      lra.cli.main.run()
  except SystemExit as e:
    code = e.code or 0
  except BaseException:
    traceback.print_exc()
  finally:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
