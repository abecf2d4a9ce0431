"""Tables of a task's accuracy by kind of example, and on longer sequences."""

import re
import types

from lra.board import inputs, statistics
from lra.board.frame import Board
from lra.board.rows import Row, mean
from lra.board.tables import Column, Table, lines, numbers, percents, text
from lra.core.formats import NONE


def breakdown(board: Board) -> Table | None:
  """Returns a table of baselines, then rows; None if no record has parts.

  The columns are shares of answers equal to those of a simple rule, then
  accuracies on the kinds of examples. All are means over seeds.
  """
  rows = lines(board.finished)
  rules = sorted({name for row in rows for kept in _kept(row, 'agreement')
                  for name in kept})
  kinds = sorted({(name, len(value), value) for row in rows
                  for kept in _kept(row, 'parts')
                  for name, values in kept.items()
                  for value in values if len(values) > 1})
  if not (rules or kinds):
    return None
  known = [types.SimpleNamespace(
      name=f'baseline: {b.name}', accuracy=b.accuracy, digits=2, row=None,
      table=types.SimpleNamespace(title=''), parts=b.parts, agreement={})
           for b in board.baselines if b.parts and not b.foreign]
  return Table([
      text('model', 'name', strong=lambda item: item.row is None),
      text('protocol', 'table.title'), percents('accuracy %', 'accuracy'),
      *(percents(f'as {rule} %', lambda item, rule=rule: _mean(
          kept.get(rule) for kept in _kept(item, 'agreement')))
        for rule in rules),
      *(percents(f'{name} {value} %',
                 lambda item, name=name, value=value: _mean(
                     part and part.accuracy for kept in _kept(item, 'parts')
                     for part in [kept.get(name, {}).get(value)]))
        for name, _, value in kinds)], [*known, *rows], pinned=len(known))


def _kept(item, field):
  """Returns a field of the test scores of each seed of a row or baseline."""
  if item.row is None:
    return [getattr(item, field)]
  return [getattr(run.test, field) for run in item.row.finished]


def _mean(scores):
  return mean([score for score in scores if score is not None])


def lengths(board: Board) -> list[str]:
  """Returns the lengths of the tests, single lengths first, then ranges."""
  found = {name for row in board.finished.row for run in row.finished
           for name in run.longer}
  return sorted(found, key=lambda name: (
      '-' in name, [int(part) for part in re.split('[-/]', name)]))


def score(row: Row, task, name: str = ''
          ) -> tuple[float, float, float] | None:
  """Returns the mean, low and high end of scaled accuracies (`Task.scaled`).

  They are those of the test of a length, `name`, or of the ordinary test. None
  if no run of the row has this test.
  """
  sample = row.longer(name) if name else row.sample
  if not sample:
    return None
  known = statistics.interval(sample)
  return tuple(map(task.scaled, (
      mean(sample.accuracies), known.low, known.high)))


def longer(board: Board) -> Table | None:
  """Returns a table of scaled accuracies by length; None without such tests."""
  names = lengths(board)
  if not names:
    return None

  def average(item):
    found = [score(item.row, board.task, name) for name in names]
    return _mean(one and one[0] for one in found) or 0.0
  return Table([
      text('model', 'name'), text('protocol', 'protocol'),
      *(Column(title, lambda item, name=name: _shown(
          score(item.row, board.task, name))) for title, name in {
              f'{board.task.seq_len} (trained)': '',
              **{name: name for name in names}}.items()),
      numbers('seeds', 'seeds', str)], sorted(
          (line for line in lines(board.finished)
           if any(run.longer for run in line.row.finished)),
          key=lambda item: -average(item)))


def _shown(found):
  if found is None:
    return NONE
  middle, low, high = found
  return f'{middle:.3f} ±{(high - low) / 2:.3f}'


def beside_published(board: Board) -> Table | None:
  """Returns a table of published scores beside ours; None without any."""
  items = []
  for paper in inputs.published_probes():
    if paper.task == board.task.name:
      row = next((row for row in board.finished.row if any(
          run.longer for run in row.finished) and (
              row.model, row.own_changes) == (paper.here, paper.changes)), None)
      items.append(types.SimpleNamespace(
          paper=paper, ours=row and score(row, board.task, paper.test)))
  if not any(item.ours for item in items):
    return None
  return Table([
      text('published model', 'paper.model'),
      text('tokens', 'paper.test'),
      Column('published', lambda item: f'{item.paper.scaled:.3f}' + (
          f' ±{item.paper.spread:.3f}' * (item.paper.spread >= 0))),
      Column('here', lambda item: _shown(item.ours)),
      Column('difference', lambda item: (
          f'{item.ours[0] - item.paper.scaled:+.3f}' if item.ours else NONE)),
      text('source', 'paper.source')], items)
