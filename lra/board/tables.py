"""Makes the tables of the leaderboard's pages, and the sentences below them.

The data of a table are a list of `rows.Row`s, not a pandas frame: for three
hundred rows, pandas would add half a second and 60 MB to every start.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lra.board import inputs, statistics
from lra.board.boards import TaskBoard
from lra.board.inputs import Published
from lra.board.rows import Row, TableKey, departures, shown
from lra.board.statistics import Sample
from lra.core.formats import (
  NONE,
  count,
  decimals,
  gib,
  percent,
  plain,
  points,
  quantity,
  ranges,
  ratio,
)


def _never(item):
  return False


@dataclasses.dataclass(frozen=True)
class Column:
  """One column of a table.

  Attributes:
    name: its heading.
    text: row -> its text, without any markup, '' for nothing.
    value: row -> its sort key: a number or None in a column of numbers, else
      the text.
    number: whether it has numbers, aligned to the right.
    strong: row -> whether the text should catch the eye.
    link: row -> address of the text's link; None for no links.
  """
  name: str
  text: Callable[[Any], str]
  value: Callable[[Any], float | str | None]
  number: bool = True
  strong: Callable[[Any], bool] = _never
  link: Callable[[Any], str] | None = None


@dataclasses.dataclass(frozen=True)
class Table:
  """A table.

  Attributes:
    columns: its columns.
    items: the item of each row, in order.
    pinned: number of first items that stay at the top in any order.
  """
  columns: Sequence[Column]
  items: Sequence[Any]
  pinned: int = 0


def text_column(name, text, strong=_never, link=None):
  return Column(name, text, text, False, strong, link)


def numbers(name, value, show, strong=_never):
  """Returns a column of one number of each row, formatted by `show`."""
  return Column(name, lambda item: show(value(item)), value, strong=strong)


def percents(name, value):
  """Returns a column of fractions of items with `digits`, as percentages."""
  return Column(name, lambda item: percent(value(item), item.digits), value)


def _by_seed(texts):
  """Joins the texts of the seeds of a row; one text if all are equal."""
  texts = list(texts)
  if len(set(texts)) < 2:
    return texts[0] if texts else ''
  return ' / '.join(text or NONE for text in texts)


def _each(name, text):
  """Returns a column that joins a text of each run, in order of seeds."""
  return text_column(name, lambda row: _by_seed(map(text, row.runs)))


def _first(values):
  return next((value for value in values if value is not None), None)


def _per_device(name, show, field):
  """Returns a column: the mean if all seeds ran on one device, else each."""
  return Column(
      name, lambda row: _by_seed(map(show, row.per_device(field))),
      lambda row: _first(row.per_device(field)))


def _setting(section, name):
  return text_column(name, lambda row: row.setting(section, name))


def _interval(row):
  known = row.interval
  if known is None:
    return NONE
  ends = ' to '.join(percent(x, row.digits) for x in (known.low, known.high))
  return ends if known.over_seeds else f'{ends} *'


def _above_baseline(row):
  text = points(row.above_baseline, row.digits)
  return f'{text} n.s.' if row.by_chance else text


def _seeds(row):
  done, all_of_them = len(row.finished), len(row.runs)
  return f'{done}' if done == all_of_them else f'{done} of {all_of_them}'


def _version(run):
  """Returns the commit; and the files' hashes if it does not fix the code."""
  commits = run.git_commits or [run.git_commit or '']
  commit = ' + '.join(text[:8] for text in commits)
  unpublished = ['unpublished'] if run.git_published is False else []
  if commit and not run.git_dirty:
    return ' '.join([commit, *(f'({word})' for word in unpublished)])
  files = ', '.join(
      f'{what} {digest[:8]}' for what, digest in (
          ('model', run.model_sha256), ('config', run.config_sha256))
      if digest)
  if not commit:
    return files
  notes = ', '.join([*unpublished, 'modified'])
  return f'{commit} ({notes}{files and ": "}{files})'


def _kernel(run):
  """Returns the kernel, and the flags that may change its program."""
  return ' '.join([run.kernel or '', *run.xla_flags]).strip()


def _notes(row):
  notes = [_failure(run) for run in row.runs if run.status != 'ok']
  if row.heavy:
    notes.append(f'{100 * (row.ratio - 1):+.1f}% parameters')
  if len(set(row.values('model_sha256'))) > 1:
    notes.append('mixed versions')
  if row.foreign:
    notes.append(
        f'data {row.data[:8]}, baselines are of data {row.foreign[:8]}')
  elif row.apart:
    notes.append(f'data {row.data[:8]}, ranks are of data {row.apart[:8]}')
  return '; '.join(notes)


def _failure(run):
  what = {'diverged': f'diverged at step {run.steps:,}',
          'oom': 'ran out of memory',
          'stopped': f'stopped at step {run.steps:,}',
          'validated': 'was not tested'}[run.status]
  return f'seed {run.seed} {what}'


def _answers(row):
  """Returns 'kept' if records store which examples were right."""
  if row.sample is None:
    return ''
  return 'not kept' if row.sample.correct is None else 'kept'


def _grid(search):
  """Returns the values that a search tried and its seed, '' for no search."""
  return '' if search is None else '; '.join([
      *(f'{plain(name)} {", ".join(map(shown, values))}'
        for name, values in search.grid.items()), f'seed {search.seed}'])


def _best_steps(row):
  return [run.best_step for run in row.runs]


def _learnt_step(row):
  """Returns the largest learnt step of the seeds, None if one lacks it."""
  steps = [run.learnt_step for run in row.runs]
  return None if None in steps else max(steps, default=None)


def _ranks(row):
  return ranges(range(row.rank.first, row.rank.last + 1)) if row.rank else NONE


_NAME = text_column('model', lambda row: row.name)
_ACCURACY = percents('accuracy %', lambda row: row.mean)
_INTERVAL = Column('95% interval', _interval,
                   lambda row: row.interval and row.interval.low)
_SEEDS = Column('seeds', _seeds, lambda row: len(row.finished))

# Columns of a `rows.Row`.
SCORES = (
    Column('rank', _ranks, lambda row: row.rank and row.rank.first),
    _NAME,
    _ACCURACY,
    _INTERVAL,
    Column('above baseline', _above_baseline, lambda row: row.above_baseline),
    _SEEDS,
    numbers('steps to 95%', _learnt_step, count),
    numbers('parameters', lambda row: row.params, count,
             strong=lambda row: row.heavy),
    numbers('state size', lambda row: row.state_size, count),
    text_column('changed from the protocol',
                lambda row: departures(row.changes, row.config)),
    text_column('search', lambda row: row.search.text if row.search else ''),
    text_column('notes', _notes, strong=lambda row: True),
)
# Columns that a table has only if a row has a text there.
OPTIONAL = ('steps to 95%', 'changed from the protocol', 'search', 'searched',
            'data', 'notes')
# Columns that only tasks of two documents have.
PAIRS = ('head',)

# Columns of a `rows.Row` in the details.
DETAILS = (
    _NAME,
    text_column('protocol', lambda row: row.table.title),
    numbers('place', lambda row: row.rank and row.rank.place, count),
    text_column('no different from places',
                lambda row: ranges(row.rank.like) if row.rank else NONE),
    text_column('family', lambda row: row.family),
    percents('best %', lambda row: max(row.accuracies, default=None)),
    numbers('standard deviation', lambda row: row.deviation, percent),
    percents('val accuracy %', lambda row: row.average('val', 'accuracy')),
    numbers('test loss', lambda row: row.average('test', 'loss'), decimals),
    *(percents(f'macro {name} %',
               lambda row, name=name: row.average('test', name.lower()))
      for name in ('precision', 'recall', 'F1')),
    numbers('test examples', lambda row: row.sample and row.sample.examples,
             count),
    text_column('answers', _answers),
    _each('data', lambda run: run.data_origin or ''),
    _setting('encoder', 'pooling'),
    _setting('encoder', 'head'),
    numbers('x Transformer', lambda row: row.ratio, ratio),
    numbers('mixer parameters', lambda row: row.largest('mixer_params'),
             count),
    numbers('steps', lambda row: row.largest('steps'), count),
    text_column('checkpoint', lambda row: row.setting('train', 'select')),
    Column('best step', lambda row: _by_seed(map(count, _best_steps(row))),
           lambda row: _first(_best_steps(row))),
    *(_per_device(f'{name} s', quantity, f'{name}_seconds')
      for name in ('train', 'eval', 'compile')),
    _per_device('peak GiB', gib, 'peak_memory_bytes'),
    text_column('device', lambda row: _by_seed(row.devices)),
    _each('dtype', lambda run: run.dtype),
    _each('kernel', _kernel),
    text_column('searched', lambda row: _grid(row.search)),
    _each('commit', _version),
)


@dataclasses.dataclass(frozen=True)
class Compared:
  """A row beside the published score of its mechanism and protocol."""
  row: Row
  paper: Published
  accuracy: float

  @property
  def deviation(self) -> float:
    """Ours minus theirs, a fraction."""
    return self.row.mean - self.accuracy

  @property
  def bounds(self) -> tuple[float, float]:
    """The deviation's 95% interval; theirs is one run on other examples."""
    return statistics.difference(self.row.sample, Sample(
        (self.accuracy,), self.row.sample.examples))

  @property
  def verdict(self) -> str:
    low, high = self.bounds
    return 'lower' if high < 0 else 'higher' if low > 0 else 'not different'


def compare(members: list[Row], papers: list[Published], task: str,
            protocol: str) -> list[Compared]:
  """Returns the finished rows of a task that have published counterparts."""
  return [
      Compared(row, paper, paper.score(task))
      for row in members if row.finished for paper in papers
      if (paper.here, paper.protocol) == (row.model, protocol)
      and paper.score(task) is not None]


def _of_row(column):
  """Returns the column for items that hold a row."""
  return dataclasses.replace(
      column, text=lambda item: column.text(item.row),
      strong=lambda item: column.strong(item.row),
      value=lambda item: column.value(item.row))


# Columns of a `Compared`.
COMPARED = (
    _of_row(_NAME),
    _of_row(dataclasses.replace(_ACCURACY, name='here %')),
    _of_row(_INTERVAL),
    _of_row(_SEEDS),
    numbers('published %', lambda item: item.accuracy, percent),
    Column('deviation', lambda item: points(item.deviation, item.row.digits),
           lambda item: item.deviation),
    Column('its 95% interval', lambda item: ' to '.join(
        points(x, item.row.digits) for x in item.bounds),
           lambda item: item.bounds[0]),
    text_column('here is', lambda item: item.verdict),
    text_column('as', lambda item: f'{item.paper.model}, {item.paper.source}, '
                f'{item.paper.evidence}'),
)

# Columns of a `boards.Baseline`.
BASELINES = (
    text_column('baseline', lambda baseline: baseline.name),
    numbers('accuracy %', lambda baseline: baseline.accuracy, percent),
    text_column('how', lambda baseline: baseline.how),
)

# Columns of an `inputs.Published`.
PUBLISHED = (
    text_column('model', lambda paper: paper.model,
                link=lambda paper: f'https://arxiv.org/abs/{paper.arxiv}'),
    *(Column(title, lambda paper, name=name: paper.scores[name],
             lambda paper, name=name: paper.score(name))
      for name, title in inputs.SCORES.items()),
    *(numbers(f'mean of {len(tasks)}', lambda paper, tasks=tasks: paper.mean(
        tasks), percent) for tasks in inputs.AVERAGES),
    text_column('source', lambda paper: paper.source + (
        '' if paper.evidence == 'primary' else f', {paper.evidence}')),
)


def without_empty(columns: Iterable[Column], items: Sequence) -> Table:
  """Returns a table without the optional columns that are empty."""
  return Table([c for c in columns if c.name not in OPTIONAL or any(
      c.text(item) not in ('', NONE) for item in items)], items)


@dataclasses.dataclass(frozen=True)
class ScoreTable:
  """The rows of a task that can be compared.

  Attributes:
    key: their protocol, and whether settings are changed.
    warning: a sentence if no row is better than the baseline, otherwise ''.
    table: table of the rows.
    notes: sentences on the comparison and on models with the same answers.
    compared: the rows beside published scores, None if there are none.
  """
  key: TableKey
  warning: str
  table: Table
  notes: list[str]
  compared: Table | None


def scores(board: TaskBoard, papers: Sequence[Published]) -> list[ScoreTable]:
  """Returns the tables of a task, beside the published results `papers`."""
  found = []
  for key, members in board.tables().items():
    compared = [] if key.departs else compare(
        members, papers, board.task.name, key.protocol)
    found.append(ScoreTable(
        key, _warning(none_above(members)), without_empty(SCORES, members),
        [*_compared_by(members, board.spreads.get(key)),
         *map(_equal_scores, _twins(members))],
        without_empty(COMPARED, compared) if compared else None))
  return found


def published(papers: Sequence[Published]) -> dict[str, Table]:
  """Returns the tables of published results by protocol."""
  return {name: Table(PUBLISHED, [p for p in papers if p.protocol == name])
          for name in sorted({paper.protocol for paper in papers})}


def baselines(board: TaskBoard) -> Table | None:
  """Returns the baselines of a task, lowest first; None without any."""
  return Table(BASELINES, board.baselines) if board.baselines else None


def details(board: TaskBoard) -> Table:
  """Returns the table of further columns of each row of a task."""
  return without_empty([c for c in DETAILS if (
      board.task.dual or c.name not in PAIRS)], board.rows)


def _warning(rows):
  """Returns that no row is better than its baseline, '' for no rows."""
  if not rows:
    return ''
  known = sorted({(row.baseline_name, row.baseline.accuracies[0])
                  for row in rows})
  name, accuracy = known[0]
  what = (f'the baseline "{name}" ({percent(accuracy)} %)' if len(known) == 1
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
    tukey = statistics.tukey([row.sample for row in ranked])
    yield (
        f'Rows are compared by seeds: {differ:,} of {pairs:,} pairs differ '
        f'significantly (Tukey\'s HSD: {tukey:,}). The standard deviation '
        f'within a typical row is {percent(spread.deviation)} points '
        f'({spread.rows} rows with several seeds, {spread.degrees} degrees of '
        'freedom). To estimate it for one row, the seeds of all rows count as '
        f'{spread.weight:.1f} more seeds of that row.')
  else:
    yield (
        f'Rows are compared by test examples, not by seeds: {differ:,} of '
        f'{pairs:,} pairs of rows differ significantly. There are too few '
        'seeds, or their spread varies too much between rows. The ranks '
        'therefore hold for these trained networks only. Other seeds may give '
        'another order.')


def _equal_scores(twins):
  """Returns a sentence on rows with equal test scores."""
  names = ' and '.join(row.name for row in twins)
  return (f'{names} have the same loss and the same right answers in every '
          'seed. With these settings they are the same model.')


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
