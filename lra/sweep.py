"""Many runs, one after another: `run_lra.py --sweep=FILE`.

Each line of the file is the flags of one run without their dashes,

    configs/transformer.py:listops_mini seeds=0-4 train.steps=1000

the config first, then, in any order, seeds (`0`, `0,3` or `0-4`; 0 if not
said) and config fields to change. `#` begins a comment. Every run is a process
of its own in its usual run directory: what is finished is skipped, what was
interrupted goes on, and one that fails does not stop the others.
"""

import ctypes
import dataclasses
import math
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from absl import flags

from lra import config_flag, identity, signals
from lra.errors import UserError
from lra.fields import COUNT
from lra.report import result as result_lib
from lra.report.result import Result

_RUN = pathlib.Path(__file__).resolve().parent.parent / 'run_lra.py'
_PR_SET_PDEATHSIG = 1
MOST_SEEDS = 1000  # of a line


@dataclasses.dataclass(frozen=True)
class Entry:
  """One run: its command-line flags and where it lives."""
  flags: tuple[str, ...]
  folder: pathlib.Path

  @property
  def title(self) -> str:
    return ' '.join(f.removeprefix('--config').lstrip('=.')
                    for f in self.flags)

  def result(self) -> tuple[result_lib.Result | None, str]:
    """Its result, None before there is one, and what is wrong with the file."""
    try:
      return result_lib.read_if_there(self.folder / 'result.json'), ''
    except UserError as e:
      return None, str(e)

  def status(self) -> str:
    """`new`, `started`, `damaged`, or the status of its result."""
    result, problem = self.result()
    if result or problem:
      return result.status if result else 'damaged'
    return 'started' if (self.folder / 'config.json').exists() else 'new'


def read(path: pathlib.Path) -> list[Entry]:
  """The runs of a sweep file, in its order.

  Raises:
    UserError: the file cannot be read, has no run or one twice, or a line
      (named) makes no config.
  """
  try:
    lines = path.read_bytes().splitlines()
  except OSError as e:
    raise UserError(
        f'Cannot read the sweep {path} ({e.strerror}): give a file of '
        'configs/sweeps/.') from e
  entries, line_of = [], {}
  for number, line in enumerate(lines, 1):
    try:
      made = list(_entries(shlex.split(line.decode('utf-8'), comments=True)))
    except (flags.Error, ValueError, UserError) as e:
      raise UserError(
          f'{path}, line {number}: {" ".join(str(e).split())}') from e
    for entry in made:
      if entry.folder in line_of:
        raise UserError(
            f'{path}, line {number}: the run {entry.folder} is that of line '
            f'{line_of[entry.folder]}: remove one.')
      line_of[entry.folder] = number
    entries += made
  if not entries:
    raise UserError(f'{path} has no run: write lines such as '
                    'configs/transformer.py:listops_mini seeds=0-4.')
  return entries


def _entries(words):
  seeds = [w.removeprefix('seeds=') for w in words if w.startswith('seeds=')]
  changes = [f'--config.{w}' for w in words[1:] if not w.startswith('seeds=')]
  if len(seeds) > 1 or any(c.startswith('--config.seed=') for c in changes):
    raise UserError('give all seeds at once, as in seeds=0,3 or seeds=0-4.')
  for seed in _seeds(seeds[0] if seeds else '0') if words else ():
    chosen = f'--config={words[0]}', *changes, f'--config.seed={seed}'
    yield Entry(chosen, identity.run_folder(config_flag.resolve(
        config_flag.made_by(chosen)).to_dict()))


def _seeds(text):
  """The seeds of `0`, `0,3` or `0-4`."""
  seeds = []
  for part in text.split(','):
    found = re.fullmatch(r'(\d+)(?:-(\d+))?', part)
    first = last = int(found[1]) if found else COUNT + 1
    if found and found[2]:
      last = int(found[2])
    if not first <= last <= COUNT or last - first >= MOST_SEEDS:
      raise UserError(
          f'seeds={text} is not possible: write 0, or 0,3, or 0-4, numbers up '
          f'to {COUNT}, at most {MOST_SEEDS} of them.')
    seeds += range(first, last + 1)
  return seeds


def run(entries: list[Entry], *, extra: tuple[str, ...] = (),
        max_minutes: float | None = None,
        recorded: Callable[[Result], bool] = lambda result: True) -> bool:
  """Runs what is not finished; returns whether all of it is then.

  Args:
    entries: the runs.
    extra: flags for each of them.
    max_minutes: stop, with a checkpoint, after so long.
    recorded: whether a finished run is on the leaderboard if it should be; a
      run that was killed before that is called again, to record it.
  """
  deadline = (None if max_minutes is None
              else time.monotonic() + 60 * max_minutes)
  with signals.later('once the run under way has stopped'):
    for i, entry in enumerate(entries, 1):
      if _finished(entry, recorded):
        continue
      seconds = math.inf if deadline is None else deadline - time.monotonic()
      if signals.reason() or seconds <= 0:
        break
      left = () if deadline is None else (
          f'--max_minutes={seconds / 60:.4f}',)
      print(f'[{i}/{len(entries)}] {entry.title}', flush=True)
      if _call(*entry.flags, *extra, *left) == signals.STOPPED and not left:
        break  # a signal to the run, not this sweep's own time limit
    print(summary(entries))
    return all(_finished(e, recorded) for e in entries)


def _finished(entry, recorded):
  """Whether a run is; of a damaged result the run itself says so."""
  result, _ = entry.result()
  return result is not None and result.finished and recorded(result)


def _call(*arguments) -> int:
  """Runs run_lra.py; signals that end the sweep reach it too."""
  child = subprocess.Popen(
      [sys.executable, str(_RUN), *arguments], preexec_fn=_die_with_parent)
  with signals.passed_on_to(child):
    return child.wait()


def _die_with_parent():
  """A sweep that is killed leaves no run behind that nobody watches."""
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def summary(entries: list[Entry]) -> str:
  """One line per run: status, test accuracy, what it is, what is damaged."""
  lines = []
  for entry in entries:
    result, problem = entry.result()
    accuracy = getattr(result and result.test, 'accuracy', None)
    score = '      –' if accuracy is None else f'{accuracy:7.2%}'
    lines.append(f'{entry.status():9}{score}  {entry.title}'
                 f'{problem and ": " + problem}')
  done = sum(e.status() in result_lib.FINISHED for e in entries)
  return '\n'.join([*lines, f'{done} of {len(entries)} runs are finished.'])
