"""Many runs, one after another: `run_lra.py --sweep=FILE`.

Each line of the file is the flags of one run without their dashes,

    configs/transformer.py:listops_mini seeds=0-4 train.steps=[500,1000]

the config first, then, in any order, seeds (`0`, `0,3` or `0-4`; 0 if not
said) and config fields to change; of values in brackets each is a run, of
several such fields each combination; see lra/grid.py for quotes. `#` begins a
comment. A process makes the seeds of one config, and of those of its line that
share its compiled step, each in its usual run directory: what is finished is
skipped, what was interrupted goes on, and one that fails does not stop the
others.
"""

import codecs
import ctypes
import dataclasses
import itertools
import math
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from absl import flags

from lra import config_flag, grid, identity, signals
from lra import seeds as seeds_lib
from lra.errors import UserError
from lra.report import result as result_lib
from lra.report import variants
from lra.report.result import Result

_RUN = pathlib.Path(__file__).resolve().parent.parent / 'run_lra.py'
_PR_SET_PDEATHSIG = 1
# Changes that leave the compiled step as it is.
_GIVEN = ('--config.train.learning_rate=', '--config.train.weight_decay=')


@dataclasses.dataclass(frozen=True)
class Entry:
  """One run of a sweep.

  Attributes:
    flags: of its command line.
    folder: where it lives.
    line: of it in the file.
    repetition: see `identity.repetition`.
  """
  flags: tuple[str, ...]
  folder: pathlib.Path
  line: int = 0
  repetition: str = ''

  @property
  def config_flags(self) -> tuple[str, ...]:
    """Its flags but for the seed."""
    return self.flags[:-1]

  @property
  def seed(self) -> str:
    return self.flags[-1].removeprefix('--config.seed=')

  @property
  def title(self) -> str:
    return _title(self.flags)

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
    lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
  except OSError as e:
    raise UserError(
        f'Cannot read the sweep {path} ({e.strerror}): give a file of '
        'configs/sweeps/.') from e
  entries, line_of = [], {}
  for number, line in enumerate(lines, 1):
    words = []
    try:
      words = grid.words(line.decode('utf-8'))
      made = list(_entries(words, number))
    except (flags.Error, ValueError, UserError) as e:
      said = ' '.join(str(e).split())
      raise UserError(f'{path}, line {number}: {said}'
                      f'{grid.hint(words[1:], said)}') from e
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


def _entries(words, line):
  seeds = [w.removeprefix('seeds=') for w in words if w.startswith('seeds=')]
  changes = [w for w in words[1:] if not w.startswith('seeds=')]
  if len(seeds) > 1 or any(c.startswith('seed=') for c in changes):
    raise UserError('give all seeds at once, as in seeds=0,3 or seeds=0-4.')
  if not words:
    return
  numbers = seeds_lib.parse(seeds[0] if seeds else '0')
  grid.check([words[0], *changes])
  for one in grid.combinations(changes):
    for seed in numbers:
      chosen = (f'--config={words[0]}', *(f'--config.{c}' for c in one),
                f'--config.seed={seed}')
      config = config_flag.resolve(config_flag.made_by(chosen)).to_dict()
      yield Entry(chosen, identity.run_folder(config), line,
                  identity.repetition(config))


def shard(entries: list[Entry], part: str) -> list[Entry]:
  """Every n-th config from the i-th on, with all its seeds.

  Args:
    entries: the runs of a sweep.
    part: 'i/n', i from 1 to n.

  Raises:
    UserError: `part` has another form.
  """
  found = re.fullmatch(r'(\d{1,9})/(\d{1,9})', part)
  i, n = map(int, found.groups()) if found else (0, 0)
  if not 1 <= i <= n:
    raise UserError(f'--shard={part} is not possible: write 1/3, 2/3 and 3/3 '
                    'on three machines.')
  return [entry for group in by_config(entries)[i - 1::n] for entry in group]


def by_config(entries: list[Entry]) -> list[list[Entry]]:
  """Entries that differ in their seed only, together, in order."""
  return [list(group) for _, group in itertools.groupby(
      entries, lambda entry: entry.config_flags)]


def run(entries: list[Entry], *, extra: tuple[str, ...] = (),
        max_minutes: float | None = None,
        recorded: Callable[[Result], bool] = lambda result: True) -> bool:
  """Runs what is left to do; returns whether it was stopped before its end.

  By a signal or a time limit; a run that fails stops no other.

  Args:
    entries: the runs.
    extra: flags for each of them.
    max_minutes: stop, with a checkpoint, after so long.
    recorded: see `left`.
  """
  stopped = False
  deadline = (None if max_minutes is None
              else time.monotonic() + 60 * max_minutes)
  with signals.later('once the run under way has stopped'):
    for made, seeds in _calls(entries, recorded):
      seconds = math.inf if deadline is None else deadline - time.monotonic()
      if signals.reason() or seconds <= 0:
        return True
      limit = () if deadline is None else (
          f'--max_minutes={seconds / 60:.4f}',)
      ready = sum(e.status() in result_lib.FINISHED for e in entries)
      print(f'[{ready} of {len(entries)} runs are finished] {_title(made)} '
            f'seeds={seeds}', flush=True)
      code = _call(*made, f'--seeds={seeds}', *extra, *limit)
      stopped = stopped or code == signals.STOPPED
      if stopped and not limit:
        break  # a signal to the run, not this sweep's own time limit
    return stopped or bool(signals.reason())


def _calls(entries, recorded):
  """What is left to do as (flags, seeds) of processes, each when it is due.

  One makes the configs of a line that share a compiled step, where the same
  seeds of them are left.
  """
  groups = {}
  for entry in entries:
    shape = [f for f in entry.config_flags if not f.startswith(_GIVEN)]
    groups.setdefault((entry.line, *shape), []).append(entry)
  for (_, *shape), group in groups.items():
    by_seeds = {}
    for config in by_config(left(group, recorded)):
      by_seeds.setdefault(','.join(e.seed for e in config), []).append(
          config[0].config_flags)
    for seeds, configs in by_seeds.items():
      if len(configs) == 1:
        yield configs[0], seeds
      else:
        yield (*shape, *map(_grid, configs)), seeds


def _grid(config_flags):
  changes = [f for f in config_flags if f.startswith(_GIVEN)]
  return f'--grid={_title(changes)}'


def _title(flags_of_run):
  return ' '.join(re.sub('^--(config|grid)[=.]', '', f) for f in flags_of_run)


def left(entries: list[Entry], recorded: Callable[[Result], bool]
         ) -> list[Entry]:
  """The runs with something left to do.

  Args:
    entries: runs; of a damaged result the run itself says that it is.
    recorded: whether a finished run is on the leaderboard if it should be; a
      run that was killed before that is called again, to record it.
  """
  results = ((entry, entry.result()[0]) for entry in entries)
  return [entry for entry, result in results if not (
      result is not None and result.finished and recorded(result))]


def failure(failed: list[Entry], total: int) -> UserError:
  """The error of runs that have failed, of so many; names their lines."""
  lines = sorted({entry.line for entry in failed})
  have = 'has' if len(failed) == 1 else 'have'
  return UserError(
      f'{len(failed)} of {total} runs {have} failed (line'
      f'{"s" * (len(lines) > 1)} {variants.listed(map(str, lines))} of the '
      'sweep): mend what was said of each, and repeat the command.')


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

