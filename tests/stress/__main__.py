"""Kills commands at random moments: is what they leave behind the same?

Usage: python -m tests.stress [--minutes=30] [--seed=0] [--kills=N]
                              [--only=train,sweep,prepare,publish]
                              [--rounds=3,7]

A round starts one command, does something to it at a random moment, starts it
again, and so on; at last it is left to end. Its outputs are then those of an
undisturbed run, but for what a clock has measured. The same seed gives the
same actions, at the same parts of the undisturbed duration. Exit status 1 if
an output differs, or a command ended as it should not.
"""

import argparse
import collections
import contextlib
import itertools
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from tests.stress import kills
from tests.stress.works import ROOT, Work, works

_STUCK = 300  # seconds after which a command is taken to hang


class Bench:
  """A folder with the undisturbed outputs and one folder for each round."""

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
    """Starts the command of a work in a session of its own."""
    with open(folder / 'stderr', 'w') as errors:
      self.started = subprocess.Popen(
          work.command, cwd=folder, stdin=subprocess.DEVNULL,
          stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
          env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT),
               'TFDS_DATA_DIR': str(self.folder / 'tfds')})
    return self.started

  def close(self) -> None:
    """Ends what still runs."""
    if self.started is not None and self.started.poll() is None:
      self.started.kill()
      self.started.wait()

  def undisturbed(self, work: Work) -> None:
    """Runs a work twice, to fill the caches and then to be compared with."""
    for name in ('warm', 'whole'):
      folder = self._make(work, f'{name}-{work.name}')
      begin = time.monotonic()
      code = self.start(work, folder).wait()
      self.seconds[work.name] = min(  # of a machine that does other things
          time.monotonic() - begin, self.seconds.get(work.name, math.inf))
      if code:
        sys.exit(f'{work.name} ends with {code} undisturbed: '
                 + (folder / 'stderr').read_text()[-2000:])
    self.expected[work.name] = work.outputs(folder)

  def round(self, work: Work, number: int, seed: int, most: int):
    """One round; returns the actions done and what is wrong, if anything."""
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
    return done, wrong + self._differences(work, folder)

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
    want, got = self.expected[work.name], work.outputs(folder)
    return [f'{name} differs' for name in sorted(want.keys() | got.keys())
            if want.get(name) != got.get(name)]


def main() -> int:
  parser = argparse.ArgumentParser(
      prog='python -m tests.stress', description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--minutes', type=float, default=30)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--kills', type=int, default=10**9)
  parser.add_argument('--only', default='train,sweep,prepare,publish')
  parser.add_argument('--rounds', help='these only, by their numbers')
  args = parser.parse_args()
  signal.signal(signal.SIGINT, signal.default_int_handler)
  chosen = [w for w in works() if w.name in args.only.split(',')]
  tried, kept = collections.Counter(), collections.Counter()
  by_action = collections.Counter()
  end = time.monotonic() + 60 * args.minutes
  with (tempfile.TemporaryDirectory(prefix='stress-') as folder,
        contextlib.closing(Bench(pathlib.Path(folder))) as bench):
    for work in chosen:
      bench.undisturbed(work)
      print(f'{work.name}: {bench.seconds[work.name]:.1f} s undisturbed',
            flush=True)
    numbers = map(int, args.rounds.split(',')) if args.rounds else (
        itertools.count())
    for number in numbers:
      left = args.kills - tried.total()
      if time.monotonic() >= end or left <= 0:
        break
      work = chosen[number % len(chosen)]
      done, wrong = bench.round(work, number, args.seed, left)
      tried[work.name] += len(done)
      kept[work.name] += 0 if wrong else len(done)
      by_action.update(done)
      print(f'round {number} {work.name}: {", ".join(done)}: '
            f'{"; ".join(wrong) or "identical"}', flush=True)
  print('\n| work | kills tried | identical |\n| :-- | --: | --: |')
  for name in tried:
    print(f'| {name} | {tried[name]} | {kept[name]} |')
  print(f'| all | {tried.total()} | {kept.total()} |\n')
  print(', '.join(f'{n} {a}' for a, n in sorted(by_action.items())))
  return int(kept != tried)


if __name__ == '__main__':
  sys.exit(main())
