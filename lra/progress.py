"""Where the runs of a sweep stand: `run_lra.py --sweep=FILE --status`."""

import dataclasses
import math
import os
import shutil
import time
from collections.abc import Sequence
from typing import TextIO

import tqdm

from lra import files
from lra.errors import UserError
from lra.report import curves
from lra.report.formats import NONE, count, percent
from lra.report.result import FINISHED
from lra.sweep import Entry

EVERY_SECONDS = 5
_HEAD = ('', 'step', 'val %', 'test %', 'left', 'last line', 'run')


@dataclasses.dataclass(frozen=True)
class Standing:
  """How far a run is.

  Attributes:
    title: its config and seed.
    status: `new`, `started`, `damaged`, or the status of its result.
    step, steps: updates made, and those it is to make; None where unknown.
    val: of a finished run the accuracy on validation of what was tested, of
      another the best so far.
    test: accuracy on test.
    left: seconds of training to come, at the pace so far.
    silent: seconds since the run's last log line, while it is not finished.
    problem: what is wrong with its files, '' if nothing is.
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


def of(entry: Entry) -> Standing:
  """How far the run of a sweep's entry is, by the files of its directory."""
  title = entry.title
  result, problem = entry.result()
  if problem:
    return Standing(title, 'damaged', problem=problem)
  if result is None and not (entry.folder / 'config.json').exists():
    return Standing(title, 'new')
  try:
    if result is None or not result.finished:
      return _under_way(entry, title, result.status if result else 'started')
    return Standing(
        title, result.status, result.steps, result.config['train']['steps'],
        *(getattr(scores, 'accuracy', None)
          for scores in (result.val, result.test)))
  except (UserError, KeyError, TypeError) as error:
    return Standing(title, 'damaged', problem=str(error))


def _under_way(entry, title, status):
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
  return Standing(
      title, status, step, steps, max(scores, default=None),
      left=(steps - step) * seconds / step if step else None,
      silent=max(time.time() - os.stat(path).st_mtime, 0))


def table(standings: Sequence[Standing], most: int | None = None) -> str:
  """One line per run, and how many are finished.

  Args:
    standings: the runs, in order.
    most: lines of runs at most; those under way come before others, and the
      finished before the new.
  """
  chosen = sorted(range(len(standings)), key=lambda i: _rank(standings[i]))
  chosen = sorted(chosen[:most])
  rows = [_HEAD, *(_cells(standings[i]) for i in chosen)]
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  lines = ['  '.join([
      row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(
          row[1:-1], widths[1:-1], strict=True)), row[-1]]) for row in rows]
  if len(chosen) < len(standings):
    lines.append(f'and {len(standings) - len(chosen)} more')
  done = sum(s.finished for s in standings)
  return '\n'.join([
      *lines, f'{done} of {len(standings)} runs are finished.'])


def _rank(standing):
  if standing.finished:
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
  """The table on a terminal, drawn again over itself.

  Args:
    entries: the runs.
    out: where; nothing is drawn where that is no terminal.
  """

  def __init__(self, entries: Sequence[Entry], out: TextIO):
    self._entries, self._out = entries, out
    self._lines, self._drawn = 0, -math.inf

  def draw(self) -> bool:
    """Draws it if it is time to; returns whether all are finished."""
    if not self._out.isatty() or (
        time.monotonic() - self._drawn < EVERY_SECONDS):
      return False
    standings = [of(entry) for entry in self._entries]
    width, height = shutil.get_terminal_size()
    lines = [line[:width - 1] for line in table(
        standings, max(height - 4, 1)).split('\n')]
    # Up to the last table's first line, and nothing left below.
    up = f'\x1b[{self._lines}A\x1b[J' if self._lines else ''
    print(up + '\n'.join(lines), file=self._out, flush=True)
    self._lines, self._drawn = len(lines), time.monotonic()
    return all(s.finished for s in standings)


def show(entries: Sequence[Entry], out: TextIO) -> None:
  """Prints the table; on a terminal again and again until all are finished.

  Ctrl-C ends that, and nothing else.
  """
  if not out.isatty():
    print(table([of(entry) for entry in entries]), file=out)
    return
  live = Live(entries, out)
  while not live.draw():
    time.sleep(EVERY_SECONDS)
