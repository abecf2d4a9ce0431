"""The tables of a task's rows, and what is said of each."""

import dataclasses
from collections.abc import Sequence

from lra.report import columns, published
from lra.report.column import Table
from lra.report.formats import percent
from lra.report.published import Published
from lra.report.row import Table as Key
from lra.report.rows import TaskBoard


@dataclasses.dataclass(frozen=True)
class Scores:
  """The rows of a task that can be compared.

  Attributes:
    key: what they have in common.
    warning: what it means that no row is above the highest floor, '' where one
      is.
    table: of the rows.
    notes: sentences about the rows: by what they are told apart; which models
      give the same answers.
    compared: beside what was published, None for nothing.
  """
  key: Key
  warning: str
  table: Table
  notes: list[str]
  compared: Table | None


def of(board: TaskBoard, papers: Sequence[Published]) -> list[Scores]:
  """The tables of a task, beside those of the published results `papers`."""
  found = []
  for key, members in board.tables().items():
    compared = [] if key.changed else published.compare(
        members, papers, board.task.name, key.protocol)
    found.append(Scores(
        key, _no_row_is_above(_none_above(members)),
        columns.told(columns.SCORES, members),
        [*_told_apart(members, board.spreads.get(key)),
         *map(_equal_scores, _twins(members))],
        columns.told(columns.COMPARED, compared) if compared else None))
  return found


def _no_row_is_above(rows):
  """What it means that none of these rows is above its floor, '' of none."""
  if not rows:
    return ''
  floors = sorted({(row.floor_name, row.floor.accuracies[0]) for row in rows})
  name, accuracy = floors[0]
  what = (f'the floor {name} ({percent(accuracy)} %)' if len(floors) == 1
          else 'the highest floor of its data')
  return (f'no row is above {what} by more than chance, so no model is known '
          'to have learnt more here than a method without a neural network '
          'finds.')


def _told_apart(rows, spread):
  """By what rows are told apart, and so what their ranks are of."""
  if spread:
    yield (f'Ranks are of mechanisms: rows are told apart by how far seeds are '
           'apart. The standard deviation within a typical row is '
           f'{percent(spread.deviation)} points ({spread.rows} rows of several '
           f'seeds, {spread.degrees} degrees of freedom in all); for each row '
           'it is estimated by its own seeds and by those of all rows, which '
           f'count as much as {spread.weight:.1f} more seeds of its own.')
  elif sum(bool(row.finished) for row in rows) > 1:
    yield ('Ranks are of these trained networks, not of their mechanisms: '
           'there are too few seeds, or they are apart too unevenly from row '
           'to row, to say how far others would be. So rows are told apart by '
           'the test examples that they answer differently. Other seeds may '
           'come in another order.')


def _equal_scores(twins):
  """What it means that the test scores of rows are equal."""
  names = ' and '.join(row.name for row in twins)
  return (f'{names} have the same loss and the same right answers in every '
          'seed: with these settings they are one model.')


def _none_above(rows):
  """The rows that have floors, if none is above its own by more than chance.

  Rows on other data than the rest count only if there are no others.
  """
  compared = [row for row in rows if row.above_floor is not None]
  compared = [row for row in compared if not row.elsewhere] or compared
  above = any(row.off_floor and row.above_floor > 0 for row in compared)
  return [] if above else compared


def _twins(rows):
  """Sets of two rows or more with equal test scores."""
  same = {}
  for row in rows:
    kept = [(run.seed, run.test.loss, run.test.correct) for run in row.finished]
    if kept and all(correct for _, _, correct in kept):
      same.setdefault(tuple(kept), []).append(row)
  return [twins for twins in same.values() if len(twins) > 1]
