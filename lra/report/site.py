"""Where a leaderboard is: its records, pages and figures, and their links."""

import dataclasses
import os
import pathlib
import shlex
import urllib.parse
from collections.abc import Callable, Sequence

from lra import place
from lra.report.result import Result
from lra.report.row import Row

OURS = pathlib.Path(__file__).resolve().parents[1] / 'results'
# The command line that makes runs again: a run, the seeds of all of them.
Command = Callable[[Result, Sequence[int]], str]
# A page shows no more letters of a command.
LONGEST = 20_000


@dataclasses.dataclass(frozen=True)
class Place:
  """Where a leaderboard is.

  Attributes:
    results: folder of its records (`runs/`, `floors/`, `published.csv`,
      `speed.json`) and figures; missing parts are made, the published results
      and the speeds are those of this package if there are no others, and so
      are the baselines of tasks without any there (see `rows.load`).
    page: the file to write; the pages of tasks are in `place.task_pages`.
    command: the command line that makes runs again, which pages show; None
      for none.
    usual_floors: the baselines of this package, or others for a test.
  """
  results: pathlib.Path
  page: pathlib.Path
  command: Command | None = None
  usual_floors: pathlib.Path | None = OURS / 'floors'

  runs = property(lambda self: self.results / 'runs')
  floors = property(lambda self: self.results / 'floors')
  figures = property(lambda self: self.results / 'figures')
  details = property(lambda self: place.details_of(self.page))

  @property
  def published(self) -> pathlib.Path | None:
    """The published results, None if there are none."""
    return self._found('published.csv')

  @property
  def speeds(self) -> pathlib.Path | None:
    """The speeds of the models, None if nobody has measured them."""
    return self._found('speed.json')

  def _found(self, name):
    for folder in (self.results, OURS):
      if (folder / name).exists():
        return folder / name
    return None

  def path(self, run: Result) -> pathlib.Path:
    """Where the record of a run is."""
    return self.runs / run.record_path

  @property
  def usual(self) -> bool:
    """Whether the program looks there unless it is told otherwise."""
    here = self.page.resolve().parent
    return (here / place.page()).resolve() == self.page.resolve() and (
        here / place.results()).resolve() == self.results.resolve()

  @property
  def flags(self) -> str:
    """The flags that commands need for this page, '' for none."""
    if self.usual:
      return ''
    beside = self.results.resolve() / place.page_of(self.results).name
    page = '' if beside == self.page.resolve() else ' --page=PAGE'
    return f' --results_dir=DIR{page}'

  def seen(self, path: pathlib.Path) -> str:
    """A path relative to the page."""
    return _relative(path, self.page.resolve().parent)

  def program(self, *words: str) -> str:
    """A command line of the program that is about this page."""
    return shlex.join([*place.program(), *words]) + self.flags


def address(path: pathlib.Path, folder: pathlib.Path) -> str:
  """The relative URL of a file or folder on a page in a folder."""
  # A folder of any name: quoted, it is neither markup nor another scheme.
  return urllib.parse.quote(
      _relative(path, folder), errors='surrogateescape')


def _relative(path, folder):
  return pathlib.Path(
      os.path.relpath(path.resolve(), folder.resolve())).as_posix()


@dataclasses.dataclass(frozen=True)
class Made:
  """Seeds of a row which one command makes again.

  Attributes:
    records: each seed's (file, URL from the folder of the records, result).
    command: the command, or a sentence that begins with "No command"; '' if
      nobody was asked.
  """
  records: list[tuple[str, str, Result]]
  command: str


def made(row: Row, command: Command | None) -> list[Made]:
  """The records of a row, by the command that makes them again."""
  every = [run.seed for run in row.runs]
  groups = {}
  for name, run in zip(row.records, row.runs, strict=True):
    url = urllib.parse.quote(
        name.partition('/')[2], errors='surrogateescape')
    groups.setdefault(command(run, every) if command else '', []).append(
        (name, url, run))
  if len(groups) == 1:
    (text, records), = groups.items()
    return [Made(records, text)]
  return [Made(records, command(records[0][2], [
      run.seed for _, _, run in records])) for records in groups.values()]
