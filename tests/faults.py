"""Puts faults into the code, one at a time, and checks that a test finds each.

Usage: python -m tests.faults [--list] [--only=REGEX] [--part=I/N] [--sane]

The faults are in tests/faults.toml. The tracked files are copied to a
temporary folder, so this checkout is never touched. Faults that no longer fit
the code are listed and left out. The exit status is 1 if a test misses its
fault, else 2 if a fault no longer fits, else 0.
"""

import argparse
import ast
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

from tests.helpers.paths import ROOT

LIST = pathlib.Path(__file__).with_name('faults.toml')


def read(only=''):
  """Reads the faults whose name matches `only`.

  Returns:
    Dicts of `name`, `file`, `before` (text that occurs once in the file),
    `after` (its faulty replacement) and `test` (one or more pytest node ids).
  """
  faults = tomllib.loads(LIST.read_text('utf-8'))['fault']
  names = [fault['name'] for fault in faults]
  assert len(set(names)) == len(names), 'two faults have the same name'
  return [fault for fault in faults if re.search(only, fault['name'])]


def copy(folder):
  """Copies the tracked files, including uncommitted changes."""
  names = subprocess.run(
      ('git', 'ls-files', '-z'), cwd=ROOT, capture_output=True, text=True,
      check=True).stdout.split('\0')
  for name in filter(None, names):
    if (ROOT / name).is_file():
      (folder / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy2(ROOT / name, folder / name)


def misfit(folder, fault):
  """Returns why a fault no longer fits the code, '' if it fits."""
  path = folder / fault['file']
  if not path.is_file():
    return f'{fault["file"]} does not exist'
  if (count := path.read_text('utf-8').count(fault['before'])) != 1:
    return f'its text occurs {count} times in {fault["file"]}, not once'
  for test in fault['test']:
    file, _, name = test.partition('::')
    if not (folder / file).is_file():
      return f'{file} does not exist'
    name = name.partition('[')[0]
    if name and name not in {
        node.name for node in ast.parse((folder / file).read_bytes()).body
        if isinstance(node, ast.FunctionDef)}:
      return f'{file} has no {name}'
  return ''


@contextlib.contextmanager
def fault_in(folder, fault):
  """Context in which the copy in `folder` has the fault."""
  path = folder / fault['file']
  whole = path.read_text('utf-8')
  path.write_text(whole.replace(fault['before'], fault['after']), 'utf-8')
  try:
    yield
  finally:
    path.write_text(whole, 'utf-8')


def run(folder, tests):
  """Runs the tests in the copy; returns (exit status, output)."""
  done = subprocess.run(
      (sys.executable, '-m', 'pytest', '-n0', '-x', '-q', '--full',
       '-p', 'no:cacheprovider', *tests),
      cwd=folder, capture_output=True, text=True, check=False,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(folder),
           'PYTHONDONTWRITEBYTECODE': '1'})
  return done.returncode, done.stdout + done.stderr


def verdict(folder, fault, sane):
  """Returns '' if a test found the fault, else what happened."""
  if sane and run(folder, fault['test'])[0] != 0:
    return 'fails without the fault'
  with fault_in(folder, fault):
    code, output = run(folder, fault['test'])
  # 1: a test failed. 0: all passed. Other codes: pytest could not run them.
  if code != 1:
    return 'UNNOTICED' if code == 0 else f'pytest ended with {code}'
  return '' if re.search(r'^FAILED ', output, re.M) else 'error, not a failure'


def main(args=None):
  parser = argparse.ArgumentParser(prog='python -m tests.faults')
  parser.add_argument('--list', action='store_true', help='print names only')
  parser.add_argument('--only', default='', metavar='REGEX')
  parser.add_argument('--part', default='0/1', metavar='I/N',
                      help='take every Nth fault, from fault I modulo N on')
  parser.add_argument('--sane', action='store_true',
                      help='first check that tests pass without the fault')
  args = parser.parse_args(args)
  faults = read(args.only)
  stale = {fault['name']: why for fault in faults
           if (why := misfit(ROOT, fault))}
  for name, why in stale.items():
    print(f'no longer fits: {name}: {why}', file=sys.stderr)
  faults = [fault for fault in faults if fault['name'] not in stale]
  if args.list:
    print(*(fault['name'] for fault in faults), sep='\n')
    return 2 if stale else 0
  part, parts = map(int, args.part.split('/'))
  faults = faults[part % parts::parts]
  wrong = 0
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    copy(folder)
    print('| fault | file | found by | seconds |\n| :-- | :-- | :-- | --: |')
    for fault in faults:
      start = time.perf_counter()
      what = verdict(folder, fault, args.sane)
      wrong += bool(what)
      tests = ', '.join(test.split('::')[-1] for test in fault['test'])
      seconds = time.perf_counter() - start
      print(f'| {fault["name"]} | {fault["file"]} | '
            f'{f"**{what}** ({tests})" if what else tests} | {seconds:.0f} |',
            flush=True)
  print(f'\n{len(faults) - wrong} of {len(faults)} found, '
        f'{len(stale)} no longer fit')
  return 1 if wrong else 2 if stale else 0


if __name__ == '__main__':
  sys.exit(main())
