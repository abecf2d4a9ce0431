"""Shows the progress of runs, read from the files of their directories."""

import dataclasses
import math
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TextIO

import tqdm

from lra.board.store import read_runs
from lra.core import files
from lra.core.errors import UserError
from lra.core.formats import NONE, aligned, count, percent
from lra.many import choose
from lra.many import runs as runs_lib
from lra.many.runs import Run
from lra.run import curves
from lra.schema import identity
from lra.schema.fields import COUNT
from lra.schema.result import FINISHED, SEARCHED, Result

EMPTY = MappingProxyType({})
EVERY_SECONDS = 5
_HEAD = ('', 'step', 'val %', 'test %', 'left', 'last line', 'run')


@dataclasses.dataclass(frozen=True)
class Standing:
  """The progress of a run.

  `val` is the validation accuracy of the tested parameters if the run is
  finished, else the best so far. `left` is the seconds of training to come at
  the speed so far, `silent` those since the last log line, `problem` the error
  in its files. A run that a search compares is `over` without a test.
  """
  title: str
  status: str
  step: int | None = None
  steps: int | None = None
  val: float | None = None
  test: float | None = None
  left: float | None = None
  silent: float | None = None
  problem: str = ''
  over: bool = False

  @property
  def finished(self) -> bool:
    return self.status in (SEARCHED if self.over else FINISHED)

  @property
  def cells(self) -> tuple[str, ...]:
    made = NONE if self.step is None else (
        f'{count(self.step)} of {count(self.steps)}')
    return (self.status, made, percent(self.val), percent(self.test),
            _time(self.left),
            NONE if self.silent is None else f'{_time(self.silent)} ago',
            f'{self.title}{self.problem and ": " + self.problem}')


def _time(seconds):
  return NONE if seconds is None else tqdm.tqdm.format_interval(seconds)


def recorded(runs: Sequence[Run], folder: pathlib.Path) -> dict[str, Result]:
  """Returns finished records of runs, by `Run.repetition`.

  A record counts whoever made it and whatever its hardware settings are, unless
  the leaderboard leaves it out. The folder is such as lra/results/runs.
  """
  found, tasks = {}, {run.folder.parent.parent.name for run in runs}
  for _, result in read_runs(folder, tasks)[0]:
    if result.finished:
      found.setdefault(identity.repetition(result.config), result)
  return found


def of(run: Run, records: Mapping[str, Result] = EMPTY) -> Standing:
  """Returns the progress of a run, by the files of its directory.

  The `records`, see `recorded`, are for runs that were not begun here.
  """
  result, problem = run.result()
  if problem:
    return Standing(run.title, 'damaged', problem=problem)
  if result is None and not (run.folder / 'config.json').exists():
    known = records.get(run.repetition)
    return Standing(run.title, 'new') if known is None else (
        _finished(run.title, 'recorded', known))
  try:
    if result is None or result.status not in SEARCHED:
      return _under_way(run, result)
    return _finished(run.title, result.status, result)
  except (UserError, OSError) as error:
    return Standing(run.title, 'damaged', problem=str(error))


def _steps(config):
  """Returns the steps of a config that somebody may have edited."""
  steps = isinstance(config, dict) and identity.flatten(
      config).get('train.steps')
  if type(steps) is not int or not 0 < steps <= COUNT:
    raise UserError('its config has no valid train.steps: restore it')
  return steps


def _finished(title, status, result):
  return Standing(
      title, status, result.steps, _steps(result.config),
      *(getattr(scores, 'accuracy', None)
        for scores in (result.val, result.test)))


def _under_way(run, result):
  status = result.status if result else 'started'
  steps = _steps(files.read_json(run.folder / 'config.json'))
  path = run.folder / 'metrics.jsonl'
  if not path.exists():
    return Standing(run.title, status, 0, steps)
  points = curves.read(path)
  scores = [point['accuracy'] for (split, _), point in points.items()
            if split == 'val' and point.get('accuracy') is not None]
  step, seconds = max(((step, point.get('seconds') or 0)
                       for (split, step), point in points.items()
                       if split == 'train'), default=(0, 0))
  if result and result.steps > step > 0:  # stopped after its last log point
    seconds *= result.steps / step
    step = result.steps
  return Standing(
      run.title, status, step, steps, max(scores, default=None),
      left=(steps - step) * seconds / step if step else None,
      silent=max(time.time() - os.stat(path).st_mtime, 0))


def table(standings: Sequence[Standing], most: int | None = None) -> str:
  """Returns one line per run, and the number of finished runs.

  If they are more than `most`, runs under way come before others, and finished
  runs before new ones.
  """
  def rank(i):
    one = standings[i]
    if one.finished or one.status == 'recorded':
      return 1
    return 2 if one.status == 'new' else 0

  chosen = sorted(sorted(range(len(standings)), key=rank)[:most])
  lines = aligned([_HEAD, *(standings[i].cells for i in chosen)],
                  right=range(1, len(_HEAD) - 1))
  if len(chosen) < len(standings):
    lines.append(f'and {len(standings) - len(chosen)} more')
  done = sum(s.finished for s in standings)
  elsewhere = sum(s.status == 'recorded' for s in standings)
  more = f' and {elsewhere} more recorded' if elsewhere else ''
  return '\n'.join([
      *lines, f'{done} of {len(standings)} runs are finished{more}.'])


def standings(runs: Sequence[Run], records: Mapping[str, Result] = EMPTY,
              whole: Sequence[Run] = ()) -> tuple[list[Standing], list[str]]:
  """Returns the progress of runs, and the best setting of each unit, in words.

  Runs of a search that will not be trained are left out. Of a unit with several
  settings only the best has a test score, once all of its runs have ended. The
  `whole` has all runs to compare, if they are more than `runs`.
  """
  found, lines = {}, []
  for unit in runs_lib.units(whole or runs):
    own = {run: of(run, records) for run in choose.wanted(unit)}
    if len(unit.settings) > 1:
      best, line = choose.of_unit(
          unit, {run: standing.val for run, standing in own.items()})
      lines += [line] * bool(line and not set(runs).isdisjoint(own))
      for run in set(own).difference(best):
        own[run] = dataclasses.replace(
            own[run], test=None, over=bool(unit.searched))
    found |= own
  return [found[run] for run in runs if run in found], lines


def text(found: Sequence[Standing], lines: Sequence[str]) -> str:
  """Returns the table and the best settings, results of `standings`."""
  return '\n'.join([table(found), *lines])


class Live:
  """A table of progress that is redrawn in place on a terminal.

  `look` returns what `standings` does.
  """

  def __init__(self, look: Callable, out: TextIO):
    self._look, self._out = look, out
    self._lines, self._drawn = 0, -math.inf

  def draw(self) -> bool:
    """Draws the table if it is due; returns whether all runs are finished."""
    if not self._out.isatty() or (
        time.monotonic() - self._drawn < EVERY_SECONDS):
      return False
    width, height = shutil.get_terminal_size()
    found, lines = self._look()
    del lines[(height - 1) // 3:]
    shown = '\n'.join([table(found, max(height - len(lines) - 4, 1)), *lines])
    cut = [line[:width - 1] for line in shown.split('\n')]
    # Moves up to the first line of the last table and clears all below.
    up = f'\x1b[{self._lines}A\x1b[J' if self._lines else ''
    print(up + '\n'.join(cut), file=self._out, flush=True)
    self._lines, self._drawn = len(cut), time.monotonic()
    return all(one.finished for one in found)


def show(look: Callable, out: TextIO) -> None:
  """Prints `text`; on a terminal again and again until all are finished.

  Ctrl-C ends only the display. For `look` see `Live`.
  """
  if not out.isatty():
    print(text(*look()), file=out)
    return
  live = Live(look, out)
  while not live.draw():
    time.sleep(EVERY_SECONDS)
