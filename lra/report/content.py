"""What is on the leaderboard's page, whatever draws it: tables, in order."""

import dataclasses
import functools
import pathlib

from lra.report import columns, overview, published, rows, scores, speeds
from lra.report.column import Table
from lra.report.overview import Group
from lra.report.published import Published
from lra.report.records import LeftOut
from lra.report.rows import TaskBoard
from lra.report.scores import Scores
from lra.report.speeds import Speeds


@dataclasses.dataclass(frozen=True)
class Content:
  """All that the page is made of.

  Attributes:
    boards: of the tasks that have rows or floors.
    papers: the published results.
    left_out: the records that are not shown.
    speeds: of the models, timed side by side; None where nobody did.
  """
  boards: list[TaskBoard]
  papers: list[Published]
  left_out: list[LeftOut]
  speeds: Speeds | None

  @functools.cached_property
  def groups(self) -> list[Group]:
    said = {board.task.name for board in self.waiting}
    return overview.groups(
        [b for b in self.boards if b.task.name not in said])

  @property
  def waiting(self) -> list[TaskBoard]:
    """The full tasks without rows, if others have some: named below `best`."""
    full = rows.full(self.boards)
    return [b for b in full if not b.rows] if any(b.rows for b in full) else []

  @property
  def best(self) -> Table:
    """The best rows of the full tasks that have rows."""
    return overview.best(self.boards)

  def scores(self, board: TaskBoard) -> list[Scores]:
    """The tables of a task."""
    return scores.of(board, self.papers)

  @property
  def published(self) -> dict[str, Table]:
    """The published results by protocol."""
    return {name: Table(columns.PUBLISHED, [
        paper for paper in self.papers if paper.protocol == name])
        for name in sorted({paper.protocol for paper in self.papers})}


def load(runs_dir: pathlib.Path, floors_dir: pathlib.Path,
         published_csv: pathlib.Path | None,
         speed_json: pathlib.Path | None,
         usual_floors: pathlib.Path | None = None) -> Content:
  """Reads what the page is made of.

  Args:
    runs_dir: folder of result records, searched recursively; may be missing.
    floors_dir: folder of floors records, `<task>.json`; may be missing.
    published_csv: the published results, None for none.
    speed_json: see `speeds.read`; None for none.
    usual_floors: see `rows.load`.

  Raises:
    UserError: a published row is not sound, and names its line; or
      `speed_json` is not.
  """
  boards, left_out = rows.load(runs_dir, floors_dir, usual_floors)
  papers = published.read(published_csv) if published_csv else []
  return Content(boards, papers, left_out,
                 speeds.read(speed_json) if speed_json else None)


def floors(board: TaskBoard) -> Table | None:
  """The floors of a task, lowest first; None where there are none."""
  return Table(columns.FLOORS, board.floors) if board.floors else None


def details(board: TaskBoard) -> Table:
  """What else is known of each row of a task."""
  return columns.told([c for c in columns.DETAILS
                if board.task.dual or c.name not in columns.PAIRS], board.rows)
