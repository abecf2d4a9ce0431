"""Shows how accuracy changes on sequences longer than those of training."""

import dataclasses
import re

from lra.board import inputs, statistics
from lra.board.boards import TaskBoard
from lra.board.rows import Row, mean
from lra.board.statistics import Interval, Sample
from lra.board.tables import Column, Table, text_column
from lra.core.formats import NONE


@dataclasses.dataclass(frozen=True)
class Score:
  """Scaled accuracies of a row on one test, see `tasks.Task.scaled`.

  Attributes:
    mean: over the seeds.
    interval: its 95% interval.
  """
  mean: float
  interval: Interval


def tested(board: TaskBoard) -> list[Row]:
  """Returns the finished rows of which a run was tested on other lengths."""
  return [row for row in board.finished
          if any(run.longer for run in row.finished)]


def lengths(board: TaskBoard) -> list[str]:
  """Returns the lengths of the tests, single lengths first, then ranges."""
  found = {name for row in tested(board) for run in row.finished
           for name in run.longer}
  return sorted(found, key=lambda name: (
      '-' in name, [int(part) for part in re.split('[-/]', name)]))


def score(row: Row, task, name: str = '') -> Score | None:
  """Returns the score of a row at a length; '' is the ordinary test.

  None if no run of the row has this test.
  """
  if name:
    found = [run.longer[name] for run in row.finished if name in run.longer]
    sample = found and Sample(tuple(s.accuracy for s in found),
                              min(s.examples for s in found))
  else:
    sample = row.sample
  if not sample:
    return None
  known = statistics.interval(sample)
  return Score(task.scaled(mean(sample.accuracies)), Interval(
      task.scaled(known.low), task.scaled(known.high), known.over_seeds))


def table(board: TaskBoard) -> Table | None:
  """Returns a table of scaled accuracies by length; None without such tests."""
  rows = tested(board)
  if not rows:
    return None
  task = board.task
  columns = [text_column('model', _name),
             text_column('protocol', lambda row: row.protocol),
             _column(f'{task.seq_len} (trained)', task, '')]
  columns += [_column(name, task, name) for name in lengths(board)]
  columns.append(Column(
      'seeds', lambda row: str(len(row.finished)),
      lambda row: len(row.finished)))
  return Table(columns, sorted(rows, key=lambda row: -_average(board, row)))


def _name(row):
  return row.name + (row.own_changes and f' ({row.own_changes})')


def _average(board, row):
  """Returns the mean score over the lengths, for the order of rows."""
  found = [score(row, board.task, name) for name in lengths(board)]
  return mean([s.mean for s in found if s]) or 0.0


def _column(title, task, name):
  def text(row):
    return _shown(score(row, task, name))
  return Column(title, text, lambda row: (
      found.mean if (found := score(row, task, name)) else None))


def _shown(found):
  """Returns the text of a `Score`."""
  if found is None:
    return NONE
  half = (found.interval.high - found.interval.low) / 2
  return f'{found.mean:.3f} ±{half:.3f}'


def panels(board: TaskBoard) -> list[dict]:
  """Returns the data of `panels.Panel`, one dict a row.

  Ranges of lengths are left out: a point of the figure has one length.
  """
  task = board.task
  names = ['', *(name for name in lengths(board) if name.isdigit())]
  made = []
  for row in table(board).items:
    points = [(int(name or task.seq_len), score(row, task, name))
              for name in names]
    made.append({
        'name': _name(row),
        'family': row.family,
        'points': [(length, s.mean, s.interval.low, s.interval.high)
                   for length, s in points if s]})
  return made


@dataclasses.dataclass(frozen=True)
class Beside:
  """A published score and our row of the same mechanism, None without one."""
  paper: inputs.PublishedProbe
  row: Row | None
  ours: Score | None


def beside_published(board: TaskBoard) -> Table | None:
  """Returns a table of published scores beside ours; None without any."""
  items = []
  for paper in inputs.published_probes():
    if paper.task == board.task.name:
      row = next((row for row in tested(board) if (
          row.model, row.own_changes) == (paper.here, paper.changes)), None)
      items.append(Beside(
          paper, row, row and score(row, board.task, paper.test)))
  if not any(item.ours for item in items):
    return None
  return Table([
      text_column('published model', lambda item: item.paper.model),
      text_column('tokens', lambda item: item.paper.test),
      Column('published', lambda item: f'{item.paper.scaled:.3f}' + (
          '' if item.paper.spread is None else f' ±{item.paper.spread:.3f}'),
             lambda item: item.paper.scaled),
      Column('here', lambda item: _shown(item.ours),
             lambda item: item.ours and item.ours.mean),
      Column('difference', lambda item: (
          f'{item.ours.mean - item.paper.scaled:+.3f}' if item.ours else NONE),
             lambda item: item.ours and item.ours.mean - item.paper.scaled),
      text_column('source', lambda item: item.paper.source)], items)
