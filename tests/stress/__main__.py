"""Kills commands at random moments and compares their outputs.

Usage: python -m tests.stress [--minutes=30] [--seed=0] [--kills=N]
                              [--only=train,runs,prepare,publish]
                              [--rounds=3,7]

A round starts one command, sends it a signal at a random moment, starts it
again, and so on. Finally the command runs to its end. Except for measured times
and memory, its outputs must be those of an undisturbed run. The seed determines
the signals and their times, as fractions of the undisturbed duration. The exit
status is 1 if an output differs or a command ended in another way than it may.
"""

import argparse
import collections
import contextlib
import itertools
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from lra.core.errors import UserError
from tests.stress import kills
from tests.stress.works import ROOT, Work, works

_STUCK = 300  # seconds that a command may run after a signal


class Bench:
  """Runs the commands in a folder, undisturbed and then in rounds of kills."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    self.seconds, self.expected = {}, {}
    self.started = None
    (folder / 'cache').mkdir()

  def _make(self, work, name):
    folder = self.folder / name
    folder.mkdir()
    work.make(folder, self.folder)
    return folder

  def start(self, work: Work, folder: pathlib.Path) -> subprocess.Popen:
    """Starts the command in a new session, so that it has its own group."""
    with open(folder / 'stderr', 'w') as errors:
      self.started = subprocess.Popen(
          work.command, cwd=folder, stdin=subprocess.DEVNULL,
          stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
          env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT),
               'TFDS_DATA_DIR': str(self.folder / 'tfds')})
    return self.started

  def close(self) -> None:
    """Kills the command if it still runs."""
    if self.started is not None and self.started.poll() is None:
      self.started.kill()
      self.started.wait()

  def undisturbed(self, work: Work) -> None:
    """Runs a command twice: to fill the caches, and for expected outputs."""
    for name in ('warm', 'whole'):
      folder = self._make(work, f'{name}-{work.name}')
      begin = time.monotonic()
      code = self.start(work, folder).wait()
      self.seconds[work.name] = min(  # other programs may slow one run down
          time.monotonic() - begin, self.seconds.get(work.name, math.inf))
      if code:
        sys.exit(f'{work.name} ends with {code} undisturbed: '
                 + (folder / 'stderr').read_text()[-2000:])
    self.expected[work.name] = work.outputs(folder)

  def round(self, work: Work, number: int, seed: int, most: int):
    """Runs round `number`, with `most` actions at most.

    Returns:
      (the actions done, the problems found).
    """
    folder = self._make(work, f'round-{number}')
    done, wrong, process = [], [], None
    for action, part in kills.plan(seed, number)[:most]:
      process = process or self.start(work, folder)
      time.sleep(part * self.seconds[work.name])
      if process.poll() is None:
        kills.act(process, action)
        done.append(action)
        if action == 'STOP CONT':
          continue
      elif process.returncode == 0:
        break
      wrong += self._end(process, action, folder)
      process = None
    if process is not None:
      wrong += self._end(process, 'STOP CONT', folder)
    code = self.start(work, folder).wait()
    if code:
      wrong.append(f'exit code {code} at last: '
                   + (folder / 'stderr').read_text()[-500:])
    wrong += self._differences(work, folder)
    if not wrong:
      shutil.rmtree(folder)
    return done, wrong

  def _end(self, process, action, folder):
    try:
      code = process.wait(timeout=_STUCK)
    except subprocess.TimeoutExpired:
      process.kill()
      process.wait()
      return [f'hangs after {action}']
    errors = (folder / 'stderr').read_text(errors='replace')
    what = kills.complaint(action, code, errors)
    return [f'{action}: {what}: {errors[-1500:]}'] if what else []

  def _differences(self, work, folder):
    try:
      want, got = self.expected[work.name], work.outputs(folder)
    except (OSError, UserError, ValueError) as e:
      return [f'its outputs cannot be read: {e}']
    return [f'{name} differs' for name in sorted(want.keys() | got.keys())
            if want.get(name) != got.get(name)]


def main() -> int:
  parser = argparse.ArgumentParser(
      prog='python -m tests.stress', description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--minutes', type=float, default=30)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--kills', type=int, default=10**9)
  parser.add_argument('--only', default='train,runs,prepare,publish')
  parser.add_argument('--rounds', help='run only rounds with these numbers')
  args = parser.parse_args()
  signal.signal(signal.SIGINT, signal.default_int_handler)
  chosen = [w for w in works() if w.name in args.only.split(',')]
  rounds = []
  with (tempfile.TemporaryDirectory(prefix='stress-') as folder,
        contextlib.closing(Bench(pathlib.Path(folder))) as bench,
        contextlib.suppress(KeyboardInterrupt)):
    for work in chosen:
      bench.undisturbed(work)
      print(f'{work.name}: {bench.seconds[work.name]:.1f} s undisturbed',
            flush=True)
    end = time.monotonic() + 60 * args.minutes
    for number in (map(int, args.rounds.split(',')) if args.rounds
                   else itertools.count()):
      left = args.kills - sum(len(done) for _, done, _ in rounds)
      if time.monotonic() >= end or left <= 0:
        break
      work = chosen[number % len(chosen)]
      done, wrong = bench.round(work, number, args.seed, left)
      rounds.append((work.name, done, wrong))
      print(f'round {number} {work.name}: {", ".join(done)}: '
            f'{"; ".join(wrong) or "identical"}', flush=True)
  print(table(rounds))
  return int(any(wrong for _, _, wrong in rounds))


def table(rounds: list[tuple[str, list[str], list[str]]]) -> str:
  """Returns a Markdown table of the kills of each command and kind.

  Args:
    rounds: (name of the command, actions done, problems) of each round.
  """
  tried, kept, kinds = (collections.Counter() for _ in range(3))
  for name, done, wrong in rounds:
    kinds.update(done)
    for row in (name, 'all'):
      tried[row] += len(done)
      kept[row] += 0 if wrong else len(done)
  rows = [f'| {name} | {n} | {kept[name]} |'
          for name, n in sorted(tried.items(), key=lambda x: x[0] == 'all')]
  return '\n'.join([
      '', '| work | kills tried | identical |', '| :-- | --: | --: |', *rows,
      '', ', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))])


if __name__ == '__main__':
  sys.exit(main())
