"""The pages of mechanisms: their results, their rivals and where they fail."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lra.board import catalogue, suite, tables
from lra.board.frame import Board, chosen
from lra.board.markdown import Markup, link
from lra.board.summary import Cell, span
from lra.board.tables import Column, Table, text
from lra.core.formats import NONE, percent

_NAMED = 5  # most rivals that a line names
_WORDS = {'': NONE, suite.BETTER: 'significantly better',
          suite.WORSE: 'significantly worse',
          suite.UNSURE: 'not significantly different'}


def compared(board: Board) -> Iterator[list]:
  """Yields the scored lines of each table, with four more attributes.

  `title` is that of the task; `place_of`, as in '1 to 3 of 9', is '' without a
  rank. `rivals` are the lines that do not differ significantly, the nearest
  first. `against` is the answer of `suite.against`, '' without a Transformer.
  """
  for key, rows in board.tables().items():
    found = [line for line in tables.lines(rows) if line.seeds]
    ranked = [line for line in found if line.rank is not None]
    reference = chosen(
        line for line in ranked if line.model == suite.suite().reference)
    against = suite.against(
        [line.row.sample for line in ranked],
        [line.model if line is reference else str(line.place)
         for line in ranked], board.spreads.get(key))
    for line in found:
      line.title = board.task.title
      line.against = against.get(str(line.place), '')
      ends = dict.fromkeys(map(str, (line.rank, line.last_rank)))
      line.place_of = f'{" to ".join(ends)} of {len(ranked)}' * (
          line.rank is not None)
      line.rivals = sorted(
          (ranked[place - 1] for place in line.like or ()
           if place != line.place),
          key=lambda other, own=line: abs(other.accuracy - own.accuracy))
    yield found


def results(boards: Iterable[Board]) -> dict[str, list]:
  """Returns the lines of each mechanism, one a task, protocol and search.

  The laptop arena comes first. Changed settings count if there are no others.
  """
  made = collections.defaultdict(dict)
  for board in boards:
    for found in compared(board):  # tables with changed settings come last
      for model in dict.fromkeys(line.model for line in found):
        one = chosen(line for line in found if line.model == model)
        made[model].setdefault(
            (one.task, one.protocol, one.table.searched), one)
  return {model: sorted(lines.values(), key=lambda line: (
      line.protocol != suite.suite().protocol))
          for model, lines in made.items()}


def table(found: Sequence) -> Table:
  """Returns the table of a mechanism's page."""
  kept = {column.name: column for column in tables.SCORES}
  return tables.without_empty([
      text('task', 'title', link=lambda line: f'../{line.task}.md'),
      text('protocol', 'table.title'),
      Column('accuracy %', lambda line: Cell(
          line.accuracy, line.digits, (line.high - line.low) / 2).text),
      kept['above baseline'], Column('rank', lambda line: line.place_of),
      text('beside the Transformer', lambda line: _WORDS[line.against]),
      text('not significantly different from', _rivals),
      *(kept[name] for name in ('seeds', 'parameters', 'state size', 'notes'))],
      found)


def _rivals(line):
  named = [link(other.name, f'{other.model}.md')
           for other in line.rivals[:_NAMED]]
  more = len(line.rivals) - len(named)
  return Markup(', '.join(named) + f' and {more} more' * (more > 0))


def failures(found: Sequence) -> dict[str, list]:
  return {'Not significantly above the baseline': [
      line for line in found if line.differs_from_baseline is False
      or line.differs_from_baseline and line.above < 0],
          'Significantly worse than the Transformer': [
              line for line in found if line.against == suite.WORSE]}


def index(found: Mapping[str, Sequence], arena: Sequence[suite.Line]) -> Table:
  """Returns the table of all mechanisms, by family."""
  averages = {line.model: line.score(suite.AVERAGE) for line in arena}
  return Table([
      text('family', lambda lines: lines[0].family),
      text('mechanism', lambda lines: lines[0].model,
           link=lambda lines: f'mechanisms/{lines[0].model}.md'),
      Column('average in the laptop arena %', lambda lines: percent(
          averages.get(lines[0].model), 1)),
      Column('state size', lambda lines: span(sorted(
          {line.state_size for line in lines} - {None})))],
      sorted(found.values(), key=lambda lines: (
          lines[0].family, lines[0].model)))


def standing(boards: Iterable[Board], task: str, record: str) -> str:
  """Returns in words where the row of a record stands; '' for no row.

  `record` is its path from the folder of the results.
  """
  for line in (line for board in boards if board.task.name == task
               for found in compared(board) for line in found):
    if record in line.row.files:
      than = ' from' if line.against == suite.UNSURE else ' than'
      return f'{line.title}, {line.table.title}: ' + (
          f'place {line.place_of}' if line.place_of else
          'no place, since its data differ from those of other rows') + (
          f'; {_WORDS[line.against]}{than} the {catalogue.REFERENCE}'
          if line.against else '')
  return ''
