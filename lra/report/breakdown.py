"""Breaks the accuracies of a task down by the kinds of its examples."""

import dataclasses
from collections.abc import Mapping, Sequence

from lra.formats import percent
from lra.report.columns import Column, Table, text_column
from lra.report.row import Row, mean
from lra.report.rows import TaskBoard


@dataclasses.dataclass(frozen=True)
class MadeOf:
  """A baseline or a row.

  Attributes:
    name, protocol: its name and protocol.
    accuracy: a fraction.
    digits: digits after the point of its percentages.
    parts, agreement: values of each seed, see `result.ClassificationScores`.
    row: the row, None for a baseline.
  """
  name: str
  protocol: str
  accuracy: float
  digits: int
  parts: Sequence[Mapping]
  agreement: Sequence[Mapping]
  row: Row | None = None


def table(board: TaskBoard) -> Table | None:
  """Returns a table of baselines, then rows; None if no record has parts.

  The columns are shares of answers equal to those of a simple rule, then
  accuracies on the kinds of examples. All are means over seeds.
  """
  rows = [_of_row(row) for row in board.finished]
  rules = sorted({name for row in rows for kept in row.agreement
                  for name in kept})
  kinds = sorted({(name, len(value), value) for row in rows
                  for kept in row.parts for name, values in kept.items()
                  for value in values if len(values) > 1})
  if not (rules or kinds):
    return None
  baselines = [MadeOf(f'baseline: {b.name}', '', b.accuracy, 2, [b.parts], [])
               for b in board.baselines if b.parts and not b.foreign]
  columns = [
      text_column('model', lambda x: x.name, strong=lambda x: x.row is None),
      text_column('protocol', lambda x: x.protocol),
      _percents('accuracy %', lambda x: x.accuracy),
      *(_percents(f'as {rule} %', lambda x, rule=rule: _mean(
          kept.get(rule) for kept in x.agreement)) for rule in rules),
      *(_percents(f'{name} {value} %', lambda x, name=name, value=value: _mean(
          _accuracy(kept, name, value) for kept in x.parts))
        for name, _, value in kinds)]
  return Table(columns, [*baselines, *rows], pinned=len(baselines))


def alike(board: TaskBoard) -> str:
  """Returns a sentence on the properties that all test examples share."""
  known = {}
  for run in (run for row in board.finished for run in row.finished):
    for name, values in run.test.parts.items():
      known.setdefault(name, set()).update(values)
  return ' '.join(
      f'All examples of test have {name} {values.pop()}: accuracy by {name} '
      'is left out.'
      for name, values in sorted(known.items()) if len(values) == 1)


def _of_row(row):
  tests = [run.test for run in row.finished]
  return MadeOf(row.name, row.table.title, row.mean, row.digits,
                [test.parts for test in tests],
                [test.agreement for test in tests], row)


def _percents(name, value):
  return Column(name, lambda x: percent(value(x), x.digits), True,
                lambda x: False, value)


def _accuracy(parts, name, value):
  part = parts.get(name, {}).get(value)
  return part and part.accuracy


def _mean(scores):
  return mean([score for score in scores if score is not None])
