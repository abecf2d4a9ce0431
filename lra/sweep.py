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
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from absl import flags
from ml_collections import config_flags

from lra import identity, signals
from lra.errors import UserError
from lra.report import result as result_lib
from lra.report.result import Result

_RUN = pathlib.Path(__file__).resolve().parent.parent / 'run_lra.py'
_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True)
class Entry:
  """One run: its command-line flags and where it lives."""
  flags: tuple[str, ...]
  folder: pathlib.Path

  @property
  def title(self) -> str:
    return ' '.join(f.removeprefix('--config').lstrip('=.')
                    for f in self.flags)

  def status(self) -> str:
    """`new`, `started`, or the status of its result."""
    result = result_lib.read_if_there(self.folder / 'result.json')
    if result:
      return result.status
    return 'started' if (self.folder / 'config.json').exists() else 'new'


def read(path: pathlib.Path) -> list[Entry]:
  """The runs of a sweep file, in its order.

  Raises:
    UserError: the file cannot be read, or a line (named) makes no config.
  """
  try:
    lines = path.read_text(encoding='utf-8').splitlines()
  except OSError as e:
    raise UserError(
        f'Cannot read the sweep {path} ({e.strerror}): give a file of '
        'configs/sweeps/.') from e
  entries = []
  for number, line in enumerate(lines, 1):
    words = shlex.split(line, comments=True)
    if words:
      try:
        entries += _entries(words)
      except (flags.Error, AttributeError, KeyError, TypeError, ValueError,
              OSError, UserError) as e:
        last = str(e).strip().splitlines()[-1]
        raise UserError(f'{path}, line {number}: {last}') from e
  repeated = {e.folder for e in entries if entries.count(e) > 1}
  if repeated:
    raise UserError(f'{path} names the run {min(repeated)} twice: remove one.')
  return entries


def _entries(words):
  changes = [w for w in words[1:] if not w.startswith('seeds=')]
  seeds = [w.removeprefix('seeds=') for w in words[1:]
           if w.startswith('seeds=')] or ['0']
  for seed in _seeds(seeds[-1]):
    chosen = (f'--config={words[0]}', *(f'--config.{c}' for c in changes),
              f'--config.seed={seed}')
    yield Entry(chosen, identity.run_folder(_config(chosen).to_dict()))


def _seeds(text):
  for part in text.split(','):
    first, _, last = part.partition('-')
    yield from range(int(first), int(last or first) + 1)


def _config(chosen):
  argv, values = ['sweep', *chosen], flags.FlagValues()
  config = config_flags.DEFINE_config_file(
      'config', lock_config=True, flag_values=values, sys_argv=argv)
  values(argv)
  return config.value.copy_and_resolve_references()


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
  """Whether a run is; one whose result is damaged is not."""
  try:
    result = result_lib.read_if_there(entry.folder / 'result.json')
  except UserError:
    return False  # the run itself says so
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
  """One line per run: status, test accuracy, what it is."""
  lines = []
  for entry in entries:
    result = result_lib.read_if_there(entry.folder / 'result.json')
    accuracy = getattr(result and result.test, 'accuracy', None)
    score = '      –' if accuracy is None else f'{accuracy:7.2%}'
    lines.append(f'{entry.status():9}{score}  {entry.title}')
  done = sum(e.status() in result_lib.FINISHED for e in entries)
  return '\n'.join([*lines, f'{done} of {len(entries)} runs are finished.'])
