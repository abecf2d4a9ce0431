"""Many runs, one after another: `run_lra.py --sweep=FILE`.

A study of `lra.many.study` is a sweep, too. Each line of a sweep file has the
flags of one or more runs, without their dashes:

  configs/transformer.py:listops_mini seeds=0-4 train.steps=[500,1000]

The config comes first. Then come, in any order, seeds (`0`, `0,3` or `0-4`;
default 0) and config fields to change. Each value in brackets is a run; several
such fields give each combination. See lra/schema/grid.py for quotes. `#` begins
a comment.

One process trains all seeds of a config, and all configs of its line that share
its compiled steps. Each run has its usual run directory. Finished runs are
skipped, interrupted ones resume, and a failed one does not stop the others.
"""

import codecs
import dataclasses
import itertools
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from absl import flags

from lra.board import rows
from lra.core import files, paths, signals
from lra.core.errors import BUG, UserError, meant
from lra.core.terminal import say
from lra.many import study
from lra.run import loader
from lra.schema import grid, identity
from lra.schema import result as result_lib
from lra.schema import seeds as seeds_lib
from lra.schema.result import Result

_MAX_BYTES = 2**22  # largest sweep file: hundreds of bytes for each run


@dataclasses.dataclass(frozen=True)
class Entry:
  """One run of a sweep.

  Attributes:
    flags: flags of its command line.
    folder: its run directory.
    line: number of its line in the file.
    repetition: see `identity.repetition`.
    arm: name of its arm in a study, else ''.
  """
  flags: tuple[str, ...]
  folder: pathlib.Path
  line: int = 0
  repetition: str = ''
  arm: str = ''

  @property
  def config_flags(self) -> tuple[str, ...]:
    """Returns its flags without the seed."""
    return self.flags[:-1]

  @property
  def seed(self) -> str:
    return self.flags[-1].removeprefix('--config.seed=')

  @property
  def title(self) -> str:
    return title(self.flags)

  def result(self) -> tuple[result_lib.Result | None, str]:
    """Returns (its result or None, the error in the file or '')."""
    try:
      return result_lib.read_if_there(self.folder / 'result.json'), ''
    except UserError as e:
      return None, str(e)

  def status(self) -> str:
    """Returns `new`, `started`, `damaged`, or the status of its result."""
    result, problem = self.result()
    if result or problem:
      return result.status if result else 'damaged'
    return 'started' if (self.folder / 'config.json').exists() else 'new'


def read(path: pathlib.Path) -> list[Entry]:
  """Returns the runs of a sweep or a study, in order; see `paths.found`.

  Raises:
    UserError: the file cannot be read, has no run or one twice, or a line
      makes no config; the message names the line.
  """
  entries, line_of = [], {}
  found = _lines(path)
  asked = [on_line(path, number, asked_by, line)
           for number, (_, line) in enumerate(found, 1)]
  told = grid.check_count(sum(a.runs for a in asked), str(path))
  if told:
    say(told)
  for number, one in enumerate(asked, 1):
    for entry in on_line(path, number, entries_of, one, number):
      if entry.folder in line_of:
        raise UserError(
            f'{path}, line {number}: the run {entry.folder} is also on line '
            f'{line_of[entry.folder]}: remove one.')
      line_of[entry.folder] = number
      entries.append(dataclasses.replace(entry, arm=found[number - 1][0]))
  if not entries and path.suffix == study.SUFFIX:
    raise UserError(f'{path} has no arms to train: its numbers are measured. '
                    '`board --studies` writes its page.')
  if not entries:
    raise UserError(f'{path} has no run: write lines such as '
                    'configs/transformer.py:listops_mini seeds=0-4.')
  return entries


def _lines(path):
  """Returns (arm or '', line in bytes) of a study or of a sweep."""
  if path.suffix == study.SUFFIX:
    return [(arm.name, line.encode()) for arm, line in study.read(path).lines]
  try:
    text = files.read(paths.found(path), _MAX_BYTES)
  except OSError as e:
    close = meant(path.name, [
        p.name for p in (paths.PACKAGE / 'configs' / 'sweeps').glob('*.txt')])
    raise UserError(
        f'Cannot read the sweep {path} ({e.strerror}): ' + (
            f'did you mean configs/sweeps/{close}?' if close else
            'give a file of configs/sweeps/.')) from e
  return [('', line)
          for line in text.removeprefix(codecs.BOM_UTF8).splitlines()]


class Asked(NamedTuple):
  """The content of a line: a config, fields to change, and seeds.

  A line without words has no runs.
  """
  config: str = ''
  changes: tuple[str, ...] = ()
  seeds: tuple[int, ...] = ()

  @property
  def runs(self):
    return grid.count(self.changes) * len(self.seeds)


def on_line(path: pathlib.Path, number: int, read: Callable, line,
            *arguments):
  """Returns `read(line, *arguments)`; an error names the file and the line."""
  try:
    return read(line, *arguments)
  except (flags.Error, ValueError, UserError) as e:
    said = ' '.join(str(e).split())
    changes = getattr(line, 'changes', ())
    raise UserError(
        f'{path}, line {number}: {said}{grid.hint(changes, said)}') from e


def asked_by(line: bytes) -> Asked:
  """Reads a line of a sweep.

  Raises:
    UserError: its seeds, changes or brackets are wrong.
  """
  words = grid.words(line.decode('utf-8'))
  seeds = [w.removeprefix('seeds=') for w in words if w.startswith('seeds=')]
  changes = [w for w in words[1:] if not w.startswith('seeds=')]
  if len(seeds) > 1 or any(c.startswith('seed=') for c in changes):
    raise UserError('give all seeds at once, as in seeds=0,3 or seeds=0-4.')
  if not words:
    return Asked()
  grid.check([words[0], *changes])
  grid.count(changes)  # raises UserError if a value is wrong
  return Asked(words[0], tuple(changes),
               tuple(seeds_lib.parse(seeds[0] if seeds else '0')))


def entries_of(asked: Asked, line: int) -> list[Entry]:
  """Returns the runs of a line: each combination of values, with all seeds.

  Raises:
    UserError, ValueError, flags.Error: they make no config.
  """
  from lra.run.experiment import resolve  # imports JAX
  made = []
  for one in grid.combinations(asked.changes):
    for seed in asked.seeds:
      chosen = (f'--config={asked.config}', *(f'--config.{c}' for c in one),
                f'--config.seed={seed}')
      run = resolve(loader.made_by(chosen), made_by=asked.config)
      made.append(Entry(chosen, run.folder, line,
                        identity.repetition(run.config.to_dict())))
  return made


def shard(entries: list[Entry], part: str) -> list[Entry]:
  """Returns every n-th config from the i-th on, with all its seeds.

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
  """Groups entries that differ only in their seed, in order."""
  return [list(group) for _, group in itertools.groupby(
      entries, lambda entry: entry.config_flags)]


def title(flags_of_run: Iterable[str]) -> str:
  """Returns flags as a line of a sweep has them."""
  return ' '.join(re.sub('^--(config|grid)[=.]', '', f) for f in flags_of_run)


def left(entries: list[Entry], recorded: Callable[[Result], bool],
         ended: Collection[str] = result_lib.FINISHED) -> list[Entry]:
  """Returns the runs that are not finished or not recorded.

  Args:
    entries: the runs; a damaged result counts as unfinished, and the run itself
      reports it.
    recorded: whether nothing is left to publish of a finished run. A run that
      was killed before it was published is run again, which publishes it.
    ended: the statuses of a finished run.
  """
  results = ((entry, entry.result()[0]) for entry in entries)
  return [entry for entry, result in results if not (
      result is not None and result.status in ended and recorded(result))]


def exit_code(left: list[Entry], stopped: bool, total: int,
              broken: Collection[int], of: str = 'sweep') -> int:
  """Returns 0 if no run is left, `signals.STOPPED` after a stop, else BUG.

  A message on stderr names the lines of the runs that have failed.

  Args:
    left: the runs that have not ended.
    stopped: whether the command was stopped.
    total: number of runs of the sweep.
    broken: lines whose processes ended by a bug or a signal; see `runner.run`.
    of: kind of the file that has the lines.

  Raises:
    UserError: all runs that are left have failed by errors of users.
  """
  if stopped or not left:
    return signals.STOPPED if left else 0
  mendable = [entry for entry in left if entry.line not in broken]
  bugs = [entry for entry in left if entry.line in broken]
  said = ' '.join(
      f'{len(some)} of {total} runs {"has" if len(some) == 1 else "have"} '
      f'{what} (line{"s" * (len(lines) > 1)} '
      f'{rows.listed(map(str, lines))} of the {of}): {advice}.'
      for some, what, advice in (
          (mendable, 'failed',
           'correct the error of each, and repeat the command'),
          (bugs, 'ended by an internal error or a signal',
           'the configs are not at fault; repeat the command, and report the '
           'traceback if it comes again'))
      if some for lines in [sorted({entry.line for entry in some})])
  if not bugs:
    raise UserError(said)
  print(f'error: {said}', file=sys.stderr)
  return BUG
