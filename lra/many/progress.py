"""Shows the progress of a sweep's runs: `run_lra.py --sweep=FILE --status`."""

import dataclasses
import itertools
import math
import os
import pathlib
import shutil
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TextIO

import tqdm

from lra.board.store import read_runs
from lra.core import files
from lra.core.errors import UserError
from lra.core.formats import NONE, aligned, count, percent
from lra.many import best
from lra.many.sweep import Entry
from lra.run import curves
from lra.schema import identity
from lra.schema.result import FINISHED, Result

EMPTY = MappingProxyType({})
EVERY_SECONDS = 5
_HEAD = ('', 'step', 'val %', 'test %', 'left', 'last line', 'run')


@dataclasses.dataclass(frozen=True)
class Standing:
  """The progress of a run.

  Attributes:
    title: its config and seed.
    status: `new`, `recorded` (elsewhere), `started`, `damaged`, or the status
      of its result.
    step, steps: updates made, and of the whole run; None if unknown.
    val: validation accuracy: of the tested parameters if the run is finished,
      else the best so far.
    test: test accuracy.
    left: seconds of training to come, at the speed so far.
    silent: seconds since the last log line of an unfinished run.
    problem: the error in its files, '' if there is none.
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

  @property
  def finished(self) -> bool:
    return self.status in FINISHED


def recorded(
    entries: Sequence[Entry], folder: pathlib.Path) -> dict[str, Result]:
  """Returns finished records of runs of a sweep, by `Entry.repetition`.

  A record counts whoever made it and whatever its hardware settings are, unless
  the leaderboard leaves it out.

  Args:
    entries: the runs.
    folder: folder of all records, such as lra/results/runs.
  """
  wanted, found = {entry.repetition for entry in entries}, {}
  tasks = {entry.folder.parent.parent.name for entry in entries}
  for _, result in read_runs(folder, tasks)[0]:
    name = identity.repetition(result.config)
    if result.finished and name in wanted:
      found.setdefault(name, result)
  return found


def of(entry: Entry, records: Mapping[str, Result] = EMPTY) -> Standing:
  """Returns the progress of a sweep's entry, by the files of its directory.

  Args:
    entry: the run.
    records: result of `recorded`, for runs that were not begun here.
  """
  title = entry.title
  result, problem = entry.result()
  if problem:
    return Standing(title, 'damaged', problem=problem)
  if result is None and not (entry.folder / 'config.json').exists():
    known = records.get(entry.repetition)
    return Standing(title, 'new') if known is None else (
        _finished(title, 'recorded', known))
  try:
    if result is None or not result.finished:
      return _under_way(entry, title, result)
    return _finished(title, result.status, result)
  except (UserError, KeyError, TypeError) as error:
    return Standing(title, 'damaged', problem=str(error))


def _finished(title, status, result):
  return Standing(
      title, status, result.steps, result.config['train']['steps'],
      *(getattr(scores, 'accuracy', None)
        for scores in (result.val, result.test)))


def _under_way(entry, title, result):
  status = result.status if result else 'started'
  steps = files.read_json(entry.folder / 'config.json')['train']['steps']
  path = entry.folder / 'metrics.jsonl'
  if not path.exists():
    return Standing(title, status, 0, steps)
  points = curves.read(path)
  scores = [point['accuracy'] for (split, _), point in points.items()
            if split == 'val' and 'accuracy' in point]
  step, seconds = max(((step, point['seconds'])
                       for (split, step), point in points.items()
                       if split == 'train'), default=(0, 0))
  if result and result.steps > step > 0:  # stopped after its last log point
    seconds *= result.steps / step
    step = result.steps
  return Standing(
      title, status, step, steps, max(scores, default=None),
      left=(steps - step) * seconds / step if step else None,
      silent=max(time.time() - os.stat(path).st_mtime, 0))


def table(standings: Sequence[Standing], most: int | None = None) -> str:
  """Returns one line per run, and the number of finished runs.

  Args:
    standings: the runs, in order.
    most: largest number of lines; runs under way come before others, and
      finished runs before new ones.
  """
  chosen = sorted(range(len(standings)), key=lambda i: _rank(standings[i]))
  chosen = sorted(chosen[:most])
  rows = [_HEAD, *(_cells(standings[i]) for i in chosen)]
  lines = aligned(rows, right=range(1, len(rows[0]) - 1))
  if len(chosen) < len(standings):
    lines.append(f'and {len(standings) - len(chosen)} more')
  done = sum(s.finished for s in standings)
  elsewhere = sum(s.status == 'recorded' for s in standings)
  more = f' and {elsewhere} more recorded' if elsewhere else ''
  return '\n'.join([
      *lines, f'{done} of {len(standings)} runs are finished{more}.'])


def text(entries: Sequence[Entry], records: Mapping[str, Result] = EMPTY,
         whole: Sequence[Entry] = (), height: int | None = None) -> str:
  """Returns the table, and the best setting of each model that has several.

  Of such a model the table has the test score of the best setting only, once
  all of its runs have ended.

  Args:
    entries: the runs of the table.
    records: see `of`.
    whole: all runs to compare, if they are more than those of the table.
    height: most lines.
  """
  found = {entry: of(entry, records) for entry in whole or entries}
  so_far = {entry: standing.val for entry, standing in found.items()}
  lines = []
  for unit in best.units(list(found)):
    if len(unit) > 1:
      chosen, line = best.of_unit(unit, so_far)
      lines += [line] * bool(line and not set(entries).isdisjoint(
          itertools.chain(*unit)))
      for entry in set(itertools.chain(*unit)).difference(chosen):
        found[entry] = dataclasses.replace(found[entry], test=None)
  if height is not None:
    del lines[height // 3:]
    height = max(height - len(lines) - 3, 1)
  return '\n'.join([
      table([found[entry] for entry in entries], height), *lines])


def _rank(standing):
  if standing.finished or standing.status == 'recorded':
    return 1
  return 2 if standing.status == 'new' else 0


def _cells(s):
  made = NONE if s.step is None else f'{count(s.step)} of {count(s.steps)}'
  return (s.status, made, percent(s.val), percent(s.test), _time(s.left),
          NONE if s.silent is None else f'{_time(s.silent)} ago',
          f'{s.title}{s.problem and ": " + s.problem}')


def _time(seconds):
  return NONE if seconds is None else tqdm.tqdm.format_interval(seconds)


class Live:
  """A table of progress that is redrawn in place on a terminal.

  Args:
    entries: the runs.
    out: the stream; nothing is drawn if it is not a terminal.
    records, whole: see `text`.
  """

  def __init__(self, entries: Sequence[Entry], out: TextIO,
               records: Mapping[str, Result] = EMPTY,
               whole: Sequence[Entry] = ()):
    self._entries, self._out, self._records = entries, out, records
    self._whole = whole
    self._lines, self._drawn = 0, -math.inf

  def draw(self) -> bool:
    """Draws the table if it is due; returns whether all runs are finished."""
    if not self._out.isatty() or (
        time.monotonic() - self._drawn < EVERY_SECONDS):
      return False
    width, height = shutil.get_terminal_size()
    lines = [line[:width - 1] for line in text(
        self._entries, self._records, self._whole, height - 1).split('\n')]
    # Moves up to the first line of the last table and clears all below.
    up = f'\x1b[{self._lines}A\x1b[J' if self._lines else ''
    print(up + '\n'.join(lines), file=self._out, flush=True)
    self._lines, self._drawn = len(lines), time.monotonic()
    return all(of(entry, self._records).finished for entry in self._entries)


def show(entries: Sequence[Entry], out: TextIO,
         records: Mapping[str, Result] = EMPTY,
         whole: Sequence[Entry] = ()) -> None:
  """Prints `text`; on a terminal again and again until all are finished.

  Ctrl-C ends only the display.
  """
  if not out.isatty():
    print(text(entries, records, whole), file=out)
    return
  live = Live(entries, out, records, whole)
  while not live.draw():
    time.sleep(EVERY_SECONDS)
