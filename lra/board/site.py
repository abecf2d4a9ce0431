"""A leaderboard: its paths, what it shows, and links between its files."""

import dataclasses
import functools
import os
import pathlib
import shlex
import urllib.parse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lra.board import inputs, store
from lra.board.rows import Row
from lra.core import paths
from lra.schema.result import Result

if TYPE_CHECKING:
  from lra.board.frame import Board

OURS = paths.PACKAGED
# A run, the seeds of all runs -> the command line that repeats them, or a
# sentence that begins with "No command".
Command = Callable[[Result, Sequence[int]], str]
# The (file, URL from the folder of the records, result) of some seeds of a row,
# and the command that repeats them, '' if there are no commands.
Made = tuple[list[tuple[str, str, Result]], str]
# Most letters of a command on a page.
LONGEST = 20_000


@dataclasses.dataclass(frozen=True)
class Place:
  """The paths of a leaderboard.

  The folder of its `results` has records, baselines, figures, and published
  results and speeds, for which those of this package stand in. The pages of
  tasks are in `details`, those of mechanisms in `pages`. Without a `command`,
  pages have no commands. Tests may have other `usual_baselines` than those of
  this package.
  """
  results: pathlib.Path
  page: pathlib.Path
  command: Command | None = None
  usual_baselines: pathlib.Path | None = OURS / 'floors'

  runs = property(lambda self: self.results / 'runs')
  baselines = property(lambda self: self.results / 'floors')
  figures = property(lambda self: self.results / 'figures')
  details = property(lambda self: paths.details_of(self.page))
  pages = property(lambda self: self.details / 'mechanisms')
  # None if there is no such file.
  published = property(lambda self: self._found('published.csv'))
  speeds = property(lambda self: self._found('speed.json'))

  def _found(self, name):
    return next((folder / name for folder in (self.results, OURS)
                 if (folder / name).exists()), None)

  def path(self, run: Result) -> pathlib.Path:
    """Returns the path of the record of a run."""
    return self.runs / run.record_path

  @property
  def flags(self) -> str:
    """The flags that commands need for this page, '' for the usual paths."""
    here, results = self.page.resolve().parent, self.results.resolve()
    if (here / paths.page()).resolve() == self.page.resolve() and (
        here / paths.results()).resolve() == results:
      return ''
    beside = results / paths.page_of(self.results).name
    page = '' if beside == self.page.resolve() else ' --page=PAGE'
    return f' --results_dir=DIR{page}'

  def program(self, *words: str) -> str:
    """Returns a command line of the program with the flags of this page."""
    return shlex.join([*paths.program(), *words]) + self.flags


def relative(path: pathlib.Path, folder: pathlib.Path) -> str:
  return pathlib.Path(
      os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def address(path: pathlib.Path, folder: pathlib.Path) -> str:
  """Returns the relative URL from a page in `folder` to a path."""
  # Quoting keeps a folder's name from acting as markup or as a URL's scheme.
  return urllib.parse.quote(
      relative(path, folder), errors='surrogateescape')


def made(row: Row, command: Command | None) -> list[Made]:
  """Groups the records of a row by the command that repeats them."""
  every = [run.seed for run in row.runs]
  groups = {}
  for name, run in zip(row.files, row.runs, strict=True):
    url = urllib.parse.quote(name.partition('/')[2], errors='surrogateescape')
    groups.setdefault(command(run, every) if command else '', []).append(
        (name, url, run))
  return [(records, text if len(groups) == 1 else command(
      records[0][2], [run.seed for *_, run in records]))
          for text, records in groups.items()]


@dataclasses.dataclass(frozen=True)
class Content:
  """All content of the pages; `papers` are the published results."""
  place: Place
  boards: 'list[Board]'
  papers: list[inputs.Published]
  left_out: list[store.LeftOut]
  speeds: inputs.Speeds | None

  @property
  def begun(self) -> 'list[Board]':
    """The tasks that have rows."""
    return [board for board in self.boards if len(board.rows)]

  @functools.cached_property
  def arena(self) -> list:
    """The mechanisms of the laptop arena, see `suite.lines`."""
    from lra.board import suite  # imported late, as in `load`
    return suite.lines(self.boards)

  @functools.cached_property
  def validity(self) -> list:
    """How the arena agrees with published scores, see `foretelling`."""
    from lra.board import foretelling
    return foretelling.validity(self.arena, self.papers)

  @functools.cached_property
  def mechanisms(self) -> dict[str, list]:
    """The lines of each mechanism's page, see `mechanisms.results`."""
    from lra.board import mechanisms
    return mechanisms.results(self.begun)

  @functools.cached_property
  def made(self) -> dict[Row, list[Made]]:
    """The records of each row, and the commands that repeat them."""
    return {row: made(row, self.place.command)
            for board in self.begun for row in board.rows.row}


def load(place: Place) -> Content:
  """Reads the content of the pages."""
  from lra.board import frame  # imported late: pandas takes half a second
  boards, left_out = frame.load(
      place.runs, place.baselines, place.usual_baselines)
  return Content(
      place, boards,
      inputs.published(place.published) if place.published else [], left_out,
      inputs.speeds(place.speeds) if place.speeds else None)
