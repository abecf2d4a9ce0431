"""The pages of mechanisms: their results, their rivals and where they fail."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lra.board import statistics, suite, tables
from lra.board.frame import Board, chosen
from lra.board.markdown import Markup, link
from lra.board.summary import Cell, span
from lra.board.tables import Column, Table, text
from lra.core import tasks
from lra.core.formats import percent
from lra.schema import identity

_NAMED = 5  # most rivals that a line names
_WORDS = {suite.BETTER: 'significantly better',
          suite.WORSE: 'significantly worse',
          suite.UNSURE: 'not significantly different'}


def compared(board: Board) -> Iterator[list]:
  """Yields the ranked lines of each table, with four more attributes.

  `title` is that of the task, `place_of` a text as '1 to 3 of 9'. `rivals` are
  the lines that do not differ significantly, the nearest first, each with the
  seeds that may settle it, see `statistics.more_seeds`. `against` is the answer
  of `suite.against`, '' for none.
  """
  for key, rows in board.tables().items():
    found = [x for x in tables.lines(rows) if x.rank is not None]
    reference = chosen(x for x in found if x.model == suite.suite().reference)
    samples = [line.row.sample for line in found]
    spread = board.spreads.get(key)
    pairs = len(found) * (len(found) - 1) // 2
    against = suite.against(samples, [
        line.model if line is reference else line.place for line in found],
        spread)
    for line in found:
      ends = dict.fromkeys(map(str, (line.rank, line.last_rank)))
      line.title, line.place_of = (
          board.task.title, f'{" to ".join(ends)} of {len(found)}')
      line.against = against.get(line.place, '')
      others = [found[place - 1] for place in line.like if place != line.place]
      line.rivals = [(other, statistics.more_seeds(
          other.row.sample, line.row.sample, spread, pairs))
                     for other in sorted(others, key=lambda other, own=line: (
                         abs(other.accuracy - own.accuracy)))]
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
      Column('rank', lambda line: line.place_of),
      Column('accuracy %', lambda line: Cell(
          line.accuracy, line.digits, (line.high - line.low) / 2).text),
      kept['above baseline'],
      text('beside the Transformer', lambda line: _WORDS.get(line.against, '')),
      text('not significantly different from', _rivals),
      *(kept[name] for name in ('seeds', 'parameters', 'state size', 'notes'))],
      found)


def _rivals(line):
  named = [link(other.name, f'{other.model}.md') + f' (+{more})' * bool(more)
           for other, more in line.rivals[:_NAMED]]
  more = len(line.rivals) - len(named)
  return Markup(', '.join(named) + f' and {more} more' * (more > 0))


def failures(found: Sequence) -> dict[str, list]:
  return {'Not significantly above the baseline': [
      line for line in found if line.differs_from_baseline is False
      or line.differs_from_baseline and line.above < 0],
          'Significantly worse than the Transformer': [
              line for line in found if line.against == suite.WORSE]}


def ability(line) -> str:
  """Returns the ability that a row shows; '' if it is not of the arena."""
  return next((task.ability for task in suite.suite().tasks
               if task.name == line.task
               and line.protocol == suite.suite().protocol), '')


def costs(found: Sequence) -> str:
  """Returns what training costs at the lengths of the laptop arena, in words.

  The seconds are those of one core for a million tokens; '' for no CPU.
  """
  known = {}
  for line in found:
    minutes = suite.core_minutes(line.row, share=0)
    batch = identity.flatten(line.row.config).get('train.batch_size')
    if line.protocol == suite.suite().protocol and minutes and batch:
      length = tasks.get(line.task).seq_len
      known[length] = 60e6 * minutes / (
          batch * line.row.runs[0].steps * length)
  return ', '.join(f'{value:.2g} at {length:,} tokens'
                   for length, value in sorted(known.items()))


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


def standing(boards: Iterable[Board], record: str) -> str:
  """Returns in words where the row of a record stands; '' for no rank.

  `record` is its path from the folder of the results.
  """
  line = next((line for board in boards for found in compared(board)
               for line in found if record in line.row.files), None)
  if line is None:
    return ''
  than = ' from' if line.against == suite.UNSURE else ' than'
  return f'{line.title}, {line.table.title}: place {line.place_of}' + (
      f'; {_WORDS[line.against]}{than} the {suite.suite().reference}'
      if line.against else '')
