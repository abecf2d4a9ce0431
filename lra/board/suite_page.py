"""The tables and the figure of the laptop arena's page; see `suite`."""

from collections.abc import Sequence
from typing import NamedTuple

from lra.board import foretelling, statistics, suite
from lra.board.foretelling import Validity
from lra.board.frame import Board
from lra.board.inputs import Published
from lra.board.rows import mean
from lra.board.suite import AVERAGE, Line, Power, Task
from lra.board.summary import span
from lra.board.tables import Column, Table, numbers, text
from lra.core.formats import NONE, count, enumerated, percent, ranges
from lra.schema import identity

_MARKS = {suite.BETTER: ' ▲', suite.WORSE: ' ▼', suite.UNSURE: ''}
_NAMED = 3  # mechanisms that an answer names
_POINTS = 0.02  # the difference that the table of power asks about


def results(found: Sequence[Line], boards: Sequence[Board]) -> Table:
  """Returns the table of scores; the baselines come first."""
  abilities = [
      (ability, name) for ability, name in sorted(
          suite.suite().abilities, key=lambda one: one[1] != AVERAGE)
      if any(line.score(name) is not None for line in found)]
  highest = {board.task.name: board.highest for board in boards}
  known = [highest.get(task.name) for task in suite.suite().averaged]
  if known and None not in known:
    highest[AVERAGE] = mean(known)

  def score(line, name):
    if line is None:
      return percent(highest.get(name), 1)
    sample = line.sample(name)
    if sample is None:
      return NONE
    cell = line.cells.get(name)
    marks = (' *' * _at_edge(cell.row) + ' †' * cell.heavy) if cell else ''
    return (suite.half(sample) + marks
            + _MARKS.get(line.against.get(name), ''))

  def strong(line, name):
    if line is None:
      return False
    if name == AVERAGE:
      return (bool(line.rank) and line.rank.first == 1
              and line.score(AVERAGE) > highest.get(AVERAGE, 0))
    cell = line.cells.get(name)
    return bool(cell) and cell.rank == 1 and suite.above_baseline(cell)

  return Table([
      text('mechanism', lambda line: line.model if line else 'baseline'),
      *(Column(ability, lambda line, name=name: score(line, name),
               strong=lambda line, name=name: strong(line, name))
        for ability, name in abilities),
      *[Column('rank', lambda line: (
          ranges(range(line.rank.first, line.rank.last + 1))
          if line and line.rank else NONE))] * any(
              line.rank for line in found),
      Column('state size', lambda line: _ends(line, 'state_size')),
      Column('parameters', lambda line: _ends(line, 'parameters')),
      numbers('core-minutes', lambda line: line and line.core_minutes,
              lambda value: NONE if value is None else f'{value:.1f}'),
      Column('seeds', lambda line: _ends(line, 'seeds'))],
      [None, *found], pinned=1)


def known(found: Sequence[Line]) -> list[Line]:
  """Returns the lines of the best of each task, and of well-known mechanisms.
  """
  best = {max(cells, key=lambda line: line.cells[task.name].accuracy).model
          for task in suite.suite().tasks
          if (cells := [line for line in found if task.name in line.cells])}
  return [line for line in found
          if line.model in best.union(suite.suite().known)]


def _ends(line, name):
  """Returns the least and the largest number of a line's tasks."""
  return NONE if line is None else span(sorted({
      getattr(cell, name) for cell in line.cells.values()} - {None}))


def _at_edge(row):
  """Returns whether the chosen learning rate is at an end of its grid."""
  return _rate(row) in (suite.suite().grid[0], suite.suite().grid[-1])


def _rate(row):
  return identity.flatten(row.config)[suite.SEARCHED]


class Answer(NamedTuple):
  """The result of a task: its ranked lines, and the best baseline."""
  ability: str
  task: str
  lines: Sequence
  baseline: float | None


def answers(boards: Sequence[Board]) -> list[Answer]:
  """Returns what each task with two mechanisms says."""
  known = {board.task.name: board for board in boards}
  found = [(task, suite.rows(known[task.name]) if task.name in known else ())
           for task in suite.suite().tasks]
  return [Answer(task.ability, task.name, lines, known[task.name].highest)
          for task, lines in found if len(lines) > 1]


def said(answer: Answer) -> str:
  """Returns an answer as sentences, in Markdown; names are of our models."""
  first, *others = answer.lines
  like = [line for line in others if line.rank == 1]
  named = ', '.join(f'`{line.model}`' for line in like[:_NAMED])
  more = len(like) - _NAMED
  ahead = len(others) - sum(place != 1 for place in first.like)
  text = f'`{first.model}` is first with {half(first)}%'
  if (first.above or 0) < 0:
    text += ', below the baseline'
  elif not suite.above_baseline(first):
    text += ', not significantly above the baseline'
  if not like:
    text += (f', significantly ahead of all {len(others)} others'
             if len(others) > 1 else ', significantly ahead of the other')
    text += f'; next is `{others[0].model}` with {half(others[0])}%'
  else:
    text += (f', significantly ahead of {ahead} of {len(others)} others'
             if ahead else '')
    text += (f', but not of {named}' if ahead else
             f', not significantly ahead of {named}')
    text += f' and {more} more' * (more > 0)
  reference = next((line for line in others if (
      line.model == suite.suite().reference)), None)
  if reference is None and first.model != suite.suite().reference:
    text += f'. `{suite.suite().reference}` has no row of this task yet'
  elif reference:
    text += (f'. `{reference.model}` has {half(reference)}%, rank '
             f'{ranges(range(reference.rank, reference.last_rank + 1))}')
  return f'{text}; the baseline has {percent(answer.baseline, 1)}%.'


def half(line) -> str:
  return suite.half(line.row.sample)


def tasks(boards: Sequence[Board]) -> Table:
  """Returns what each task asks, and its best baseline."""
  known = {board.task.name: board for board in boards}

  def baseline(task: Task):
    board = known.get(task.name)
    best = board and board.baselines[-1:]
    return f'{percent(best[0].accuracy, 1)} ({best[0].name})' if best else NONE
  return Table([
      text('ability', 'ability'), text('task', 'name'), text('asks', 'why'),
      text('example', 'example'),
      text('baseline %', baseline), text('best possible %', 'best'),
      text('in the average', lambda task: (
          'yes' if task in suite.suite().averaged else 'no'))],
      suite.suite().tasks)


def progress(found: Sequence[Line]) -> str:
  """Returns which rows there are, what they took, and what is left."""
  now = suite.progress(found)
  text = (f'{now.complete} of {now.mechanisms} mechanisms have rows of all '
          f'tasks. {now.made} of {now.cells} cells of the table are filled, '
          f'which took {now.spent:.0f} core-hours')
  return f'{text}.' if now.made == now.cells else (
      f'{text}; the others need about {now.left:.0f} more, at the mean time of '
      'a cell. `python run_lra.py runs laptop --missing --record` makes them, '
      'the most informative mechanisms first.')


def searches(found: Sequence[Line]) -> Table:
  """Returns the chosen learning rates, and the validation of each one tried."""
  def chosen(line, name):
    if name not in line.cells:
      return NONE
    row = line.cells[name].row
    scores = ' / '.join(percent(score, 1) for _, score in row.search.scores)
    return f'{_rate(row):g} ({scores})'
  return Table([text('mechanism', 'model'), *(
      Column(task.ability, lambda line, name=task.name: chosen(line, name))
      for task in suite.suite().tasks)], found)


def validity(found: Sequence[Validity]) -> Table:
  """Returns how the order of each task agrees with published columns."""
  def held(item):
    if item.held is None:
      return NONE
    middle, low, high = item.held
    return f'{middle:.2f} ({low:.2f} to {high:.2f})'

  def furthest(item):
    if item.furthest is None:
      return NONE
    model, here, there = item.furthest
    return f'{model}: place {here} here, {there} published'
  designed = suite.suite().designed_on

  def held_out(item):
    rows = sum(name not in designed for name, *_ in item.points)
    return f'{rows} of {item.known}'

  def own(item):
    rows = sum(name in designed for name, *_ in item.points)
    return NONE if item.own is None else f'{item.own:.2f} ({rows})'
  return Table([
      text('ability', 'ability'), text('published column', 'title'),
      Column('held-out mechanisms', held_out),
      Column('rank correlation (95% interval)', held),
      Column('within groups', lambda item: (
          NONE if item.within is None else f'{item.within:.2f}')),
      Column('far pairs in published order', lambda item: (
          '{} of {}'.format(*item.far))),
      Column('correlation of those of the design', own),
      Column('furthest off', furthest), text('verdict', 'verdict')], found)


def foretold(found: Sequence[Validity]) -> str:
  """Returns what the arena foretells and what not, as sentences."""
  known = [item for item in found if item.far[1]]
  if not known:
    return ''
  some = [f'{item.far[0]} of {item.far[1]} ' + (
      f'by the {item.ability}' if item.title == AVERAGE else f'on {item.title}')
          for item in known if item.verdict != foretelling.NO_TEST]
  whole = {
      foretelling.VALIDATED: ' So the arena foretells Long Range Arena.',
      foretelling.NOT_VALIDATED:
          ' So the arena does not foretell Long Range Arena as a whole.'}
  return (
      'Take two mechanisms that were not looked at when the arena was '
      'designed, with published scores 10 points or more apart. Of such pairs, '
      f'{enumerated(some)} have the same order here.'
      + whole.get(found[-1].verdict, ''))


def between(papers: Sequence[Published]) -> str:
  """Returns a sentence on how far published tables agree, '' if unknown."""
  found = foretelling.between(papers)
  if found is None:
    return ''
  names = enumerated([f'`{name}`' for name in found.models])
  first, second = (f'`{name}`' for name in found.protocols)
  correlations = enumerated([
      f'{value:.2f} on {title}' for title, value in found.correlations.items()])
  return (
      f'Two published tables, of the protocols {first} and {second}, share '
      f'only {names}. Their orders have rank correlations of {correlations}: '
      'too few mechanisms to tell, but no common order shows.')


def averaged() -> str:
  """Returns a sentence with the tasks of the average."""
  names = [task.ability for task in suite.suite().averaged]
  if not names:
    return 'There is no average: no task foretells Long Range Arena.'
  return f'The average is over {enumerated(names)}.' if len(names) > 1 else (
      f'The average is {names[0]} alone: no other task foretells its column of '
      'Long Range Arena.')


def designed() -> str:
  """Returns a sentence with the mechanisms that are not held out."""
  names = suite.suite().designed_on
  return ('The tasks and the recipe were chosen while looking only at '
          f'{enumerated(names)}. All other mechanisms are held out.')


def power(found: Sequence[Power]) -> Table:
  """Returns the spread of seeds, and the seeds that two points need."""
  def needed(item, comparisons):
    return NONE if item.deviation is None else count(statistics.seeds_needed(
        item.deviation, _POINTS, comparisons, item.weight))
  return Table([
      text('ability', 'ability'), numbers('test examples', 'examples', count),
      numbers('mechanisms', 'rows', count),
      numbers('deviation of seeds, points', 'deviation', percent),
      Column('pairs that differ', lambda item: f'{percent(item.apart, 0)}%'),
      numbers('median width of a rank', 'width', '{:.0f}'.format),
      Column('seeds for 2 points, all pairs', lambda item: needed(
          item, item.rows * (item.rows - 1) // 2)),
      Column('seeds for 2 points, against one', lambda item: needed(
          item, item.rows - 1))], found)
