"""Makes the tables of the leaderboard's pages, and the sentences below them.

The frame behind them is a list of `row.Row`s. pandas would add half a second
and 60 MB to every start for three hundred of them.
"""

import dataclasses
import functools
from collections.abc import Sequence

from lra.formats import percent
from lra.records.store import LeftOut
from lra.report import columns, comparison, published, rows, speeds
from lra.report.columns import Table
from lra.report.published import Published
from lra.report.row import Row
from lra.report.row import Table as Key
from lra.report.rows import TaskBoard
from lra.report.site import Made, Place, made
from lra.report.speeds import Speeds


@dataclasses.dataclass(frozen=True)
class Content:
  """All content of the pages.

  Attributes:
    place: paths of the leaderboard.
    boards: boards of the tasks that have rows or baselines.
    papers: the published results.
    left_out: the records that are not shown.
    speeds: speeds of the models, timed side by side; None without a file.
  """
  place: Place
  boards: list[TaskBoard]
  papers: list[Published]
  left_out: list[LeftOut]
  speeds: Speeds | None

  @property
  def begun(self) -> list[TaskBoard]:
    """The tasks that have rows."""
    return [board for board in self.boards if board.rows]

  @functools.cached_property
  def _made(self):
    return {id(row): made(row, self.place.command)
            for board in self.boards for row in board.rows}

  def made(self, row: Row) -> list[Made]:
    """Returns the records of a row, and the commands that repeat them."""
    return self._made[id(row)]

  @property
  def published(self) -> dict[str, Table]:
    """The published results by protocol."""
    return {name: Table(columns.PUBLISHED, [
        paper for paper in self.papers if paper.protocol == name])
        for name in sorted({paper.protocol for paper in self.papers})}


@dataclasses.dataclass(frozen=True)
class Scores:
  """The rows of a task that can be compared.

  Attributes:
    key: their protocol, and whether settings are changed.
    warning: a sentence if no row is better than the baseline, otherwise ''.
    table: table of the rows.
    notes: sentences on the comparison and on models with the same answers.
    compared: the rows beside published scores, None if there are none.
  """
  key: Key
  warning: str
  table: Table
  notes: list[str]
  compared: Table | None


def load(place: Place) -> Content:
  """Reads the content of the pages.

  Raises:
    UserError: a published row is not valid, and names its line; or the speeds
      are not.
  """
  boards, left_out = rows.load(place.runs, place.floors, place.usual_floors)
  return Content(
      place, boards, published.read(place.published) if place.published else [],
      left_out, speeds.read(place.speeds) if place.speeds else None)


def scores(board: TaskBoard, papers: Sequence[Published]) -> list[Scores]:
  """Returns the tables of a task, beside the published results `papers`."""
  found = []
  for key, members in board.tables().items():
    compared = [] if key.changed else published.compare(
        members, papers, board.task.name, key.protocol)
    found.append(Scores(
        key, _warning(none_above(members)),
        columns.told(columns.SCORES, members),
        [*_compared_by(members, board.spreads.get(key)),
         *map(_equal_scores, _twins(members))],
        columns.told(columns.COMPARED, compared) if compared else None))
  return found


def baselines(board: TaskBoard) -> Table | None:
  """Returns the baselines of a task, lowest first; None without any."""
  return Table(columns.BASELINES, board.baselines) if board.baselines else None


def details(board: TaskBoard) -> Table:
  """Returns the table of further columns of each row of a task."""
  return columns.told([c for c in columns.DETAILS if (
      board.task.dual or c.name not in columns.PAIRS)], board.rows)


def _warning(rows):
  """Returns that no row is better than its baseline, '' for no rows."""
  if not rows:
    return ''
  known = sorted({(row.baseline_name, row.baseline.accuracies[0])
                  for row in rows})
  name, accuracy = known[0]
  what = (f'the baseline {name} ({percent(accuracy)} %)' if len(known) == 1
          else 'the baseline of its data')
  return f'No row is significantly better than {what}.'


def _compared_by(rows, spread):
  """Yields a paragraph on the comparison of the rows of a table."""
  ranked = [row for row in rows if row.rank]
  if len(ranked) < 2:
    return
  pairs = len(ranked) * (len(ranked) - 1) // 2
  differ = (len(ranked)**2 - sum(len(row.rank.like) for row in ranked)) // 2
  if spread:
    tukey = comparison.tukey([row.sample for row in ranked])
    yield (
        f'Rows are compared by seeds: {differ:,} of {pairs:,} pairs differ '
        f'(Tukey\'s HSD: {tukey:,}). The standard deviation within a typical '
        f'row is {percent(spread.deviation)} points ({spread.rows} rows of '
        f'several seeds, {spread.degrees} degrees of freedom); for each row it '
        'is estimated by its own seeds and by those of all rows, which count '
        f'as {spread.weight:.1f} more seeds of its own.')
  else:
    yield (
        f'Rows are compared by test examples: {differ:,} of {pairs:,} pairs '
        'differ. There are too few seeds, or rows spread too unevenly, to '
        'compare by seeds; so ranks are of these trained networks, and other '
        'seeds may come in another order.')


def _equal_scores(twins):
  """Returns a sentence on rows with equal test scores."""
  names = ' and '.join(row.name for row in twins)
  return (f'{names} have the same loss and the same right answers in every '
          'seed: with these settings they are one model.')


def none_above(rows: Sequence[Row]) -> list[Row]:
  """Returns the rows with a baseline, if none is significantly better.

  Rows on other data than the rest count only if there are no others.
  """
  known = [row for row in rows if row.above_baseline is not None]
  known = [row for row in known if not row.elsewhere] or known
  above = any(row.off_baseline and row.above_baseline > 0 for row in known)
  return [] if above else known


def _twins(rows):
  """Returns sets of two rows or more with equal test scores."""
  same = {}
  for row in rows:
    kept = [(run.seed, run.test.loss, run.test.correct) for run in row.finished]
    if kept and all(correct for _, _, correct in kept):
      same.setdefault(tuple(kept), []).append(row)
  return [twins for twins in same.values() if len(twins) > 1]
