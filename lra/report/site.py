"""Where a page is, and how it names what is beside it."""

import dataclasses
import os
import pathlib
import shlex
import urllib.parse
from collections.abc import Callable, Sequence

from lra import place
from lra.report.result import Result
from lra.report.row import Row

# The command line that makes runs again: a run, the seeds of all of them.
Command = Callable[[Result, Sequence[int]], str]
# A page shows no more letters of a command.
LONGEST = 20_000


@dataclasses.dataclass(frozen=True)
class Site:
  """A page, and where its records and figures are.

  Attributes:
    page: its file.
    runs: the folder of its records, in that of the results.
    figures: the folder of its figures.
  """
  page: pathlib.Path
  runs: pathlib.Path
  figures: pathlib.Path

  @property
  def usual(self) -> bool:
    """Whether the program looks there unless it is told otherwise."""
    here = self.page.resolve().parent
    return (here / place.page()).resolve() == self.page.resolve() and (
        here / place.results()).resolve() == self.runs.resolve().parent

  @property
  def flags(self) -> str:
    """What commands need to be told for this page, '' for nothing."""
    if self.usual:
      return ''
    beside = self.runs.resolve().parent / place.page_of(self.runs.parent).name
    page = '' if beside == self.page.resolve() else ' --page=PAGE'
    return f' --results_dir=DIR{page}'

  @property
  def runs_path(self) -> str:
    """The folder of the records, seen from the page."""
    return _relative(self.runs, self.page.resolve().parent)

  def program(self, *words: str) -> str:
    """A command line of the program that is about this page."""
    return shlex.join([*place.program(), *words]) + self.flags

  def figure(self, name: str) -> str:
    """The address of a figure."""
    return f'{address(self.figures, self.page.resolve().parent)}/{name}'


def address(path: pathlib.Path, page_folder: pathlib.Path) -> str:
  """The address of a file or folder on a page of another folder."""
  # A folder of any name: quoted, it is neither markup nor another scheme.
  return urllib.parse.quote(
      _relative(path, page_folder), errors='surrogateescape')


def _relative(path, folder):
  return pathlib.Path(
      os.path.relpath(path.resolve(), folder.resolve())).as_posix()


@dataclasses.dataclass(frozen=True)
class Made:
  """Seeds of a row which one command makes again.

  Attributes:
    records: each seed's (file, address, result), as of `Row.records`.
    command: the command, or a sentence that begins with "No command"; '' where
      nobody was asked.
  """
  records: list[tuple[str, str, Result]]
  command: str


def made(row: Row, runs_url: str, command: Command | None) -> list[Made]:
  """The records of a row, by the command that makes them again.

  Args:
    row: the row.
    runs_url: the address of the folder of the records.
    command: None for no commands.
  """
  every = [run.seed for run in row.runs]
  groups = {}
  for name, run in zip(row.records, row.runs, strict=True):
    url = f'{runs_url}/' + urllib.parse.quote(
        name.partition('/')[2], errors='surrogateescape')
    groups.setdefault(command(run, every) if command else '', []).append(
        (name, url, run))
  if len(groups) == 1:
    (text, records), = groups.items()
    return [Made(records, text)]
  return [Made(records, command(records[0][2], [
      run.seed for _, _, run in records])) for records in groups.values()]
