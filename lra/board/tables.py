"""The tables of a task's page.

A table is a list of columns and a list of items. The items are mostly lines of
`frame.Board.rows`, see `lines`.
"""

import operator
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pandas

from lra.board import inputs, statistics
from lra.board.frame import Board
from lra.board.inputs import Published
from lra.board.rows import TableKey, departures, shown
from lra.board.statistics import Sample
from lra.core import formats
from lra.core.formats import NONE, count, percent, points, ranges
from lra.schema import fields


class Column(NamedTuple):
  """One column of a table; it may be `strong`, and its text have a link.

  `text` is the text of an item without markup, '' for nothing. Numbers are
  aligned to the right; the HTML page sorts rows by the first number of the
  text.
  """
  name: str
  text: Callable[[Any], str]
  number: bool = True
  strong: Callable[[Any], bool] = lambda item: False
  link: Callable[[Any], str] | None = None


class Table(NamedTuple):
  """A table; its first `pinned` items stay at the top in any order."""
  columns: Sequence[Column]
  items: Sequence[Any]
  pinned: int = 0


def _getter(get):
  """Returns a function of an item; `get` may be the name of an attribute."""
  return operator.attrgetter(get) if isinstance(get, str) else get


def text(name: str, get: Callable | str, **options) -> Column:
  return Column(name, _getter(get), False, **options)


def numbers(name: str, get: Callable | str, show: Callable, **options
            ) -> Column:
  """Returns a column of one number of each item, formatted by `show`."""
  value = _getter(get)
  return Column(name, lambda item: show(value(item)), **options)


def percents(name: str, get: Callable | str) -> Column:
  """Returns a column of fractions of items with `digits`, as percentages."""
  value = _getter(get)
  return Column(name, lambda item: percent(value(item), item.digits))


def without_empty(columns: Iterable[Column], items: Sequence) -> Table:
  """Returns a table without the optional columns that are empty."""
  return Table([c for c in columns if c.name not in _OPTIONAL or any(
      c.text(item) not in ('', NONE) for item in items)], items)


def lines(rows: pandas.DataFrame) -> list:
  """Returns the lines of a frame, as objects with its columns as attributes."""
  return [types.SimpleNamespace(**line) for line in rows.to_dict('records')]


def _by_seed(texts):
  """Joins the texts of the seeds of a row; one text if all are equal."""
  texts = list(texts)
  if len(set(texts)) > 1:
    return ' / '.join(text or NONE for text in texts)
  return texts[0] if texts else ''


def _each(name, show):
  """Returns a column that joins a text of each run, in order of seeds."""
  return text(name, lambda item: _by_seed(map(show, item.row.runs)))


def _per_device(name, show, field):
  """Returns a column: the mean if all seeds ran on one device, else each."""
  return Column(
      name, lambda item: _by_seed(map(show, item.row.per_device(field))))


def _setting(section, name, title=''):
  return text(title or name, lambda item: item.row.setting(section, name))


def _interval(item):
  if item.low is None:
    return NONE
  ends = ' to '.join(percent(x, item.digits) for x in (item.low, item.high))
  return ends if item.interval_over == 'seeds' else f'{ends} *'


def _version(run):
  """Returns the commit; and the files' hashes if it does not fix the code."""
  commits = run.git_commits or [run.git_commit or '']
  commit = ' + '.join(text[:8] for text in commits)
  files = ', '.join(f'{what} {digest[:8]}' for what, digest in (
      ('model', run.model_sha256), ('config', run.config_sha256)) if digest)
  notes = ', '.join(['unpublished'] * (run.git_published is False)
                    + ['modified'] * bool(run.git_dirty))
  if run.git_dirty and files:
    notes += f': {files}'
  return f'{commit} ({notes})' if commit and notes else commit or files


def _notes(item):
  ends = {'diverged': 'diverged at step {0.steps:,}',
          'oom': 'ran out of memory', 'stopped': 'stopped at step {0.steps:,}',
          'validated': 'was not tested'}
  notes = [f'seed {run.seed} {ends[run.status].format(run)}'
           for run in item.row.runs if run.status != 'ok']
  if item.heavy:
    notes.append(f'{100 * (item.relative_parameters - 1):+.1f}% parameters')
  if item.row.config['model'].get('released', fields.added(
      item.row.model).get('model.released')) is False:
    notes.append('not as in the released code (released=False)')
  if len(set(item.row.values('model_sha256'))) > 1:
    notes.append('mixed versions')
  if item.foreign or item.apart:
    what = 'baselines' if item.foreign else 'ranks'
    notes.append(f'data {item.data[:8]}, {what} are of data '
                 f'{(item.foreign or item.apart)[:8]}')
  return '; '.join(notes)


def _answers(item):
  """Returns 'kept' if records store which examples were right."""
  if item.accuracy is None:
    return ''
  return 'not kept' if item.row.sample.correct is None else 'kept'


def _grid(item):
  """Returns the values that a search tried and its seed, '' for no search."""
  search = item.row.search
  return '' if search is None else '; '.join([
      *(f'{formats.plain(name)} {", ".join(map(shown, values))}'
        for name, values in search.grid.items()), f'seed {search.seed}'])


def _learnt_step(item):
  """Returns the largest learnt step of the seeds, None if one lacks it."""
  steps = [run.learnt_step for run in item.row.runs]
  return None if None in steps else max(steps)


_NAME = text('model', 'name')
_ACCURACY = percents('accuracy %', 'accuracy')
_INTERVAL = Column('95% interval', _interval)
_SEEDS = Column(
    'seeds', lambda item: f'{item.seeds}' if item.seeds == item.runs else (
        f'{item.seeds} of {item.runs}'))
# Columns of the table of scores.
SCORES = (
    Column('rank', lambda item: NONE if item.rank is None else ranges(
        range(item.rank, item.last_rank + 1))),
    _NAME, _ACCURACY, _INTERVAL,
    Column('above baseline', lambda item: (
        points(item.above, item.digits) + ' n.s.' * (
            item.differs_from_baseline is False))),
    _SEEDS,
    numbers('steps to 95%', _learnt_step, count),
    numbers('parameters', 'parameters', count, strong=_getter('heavy')),
    numbers('state size', 'state_size', count),
    text('changed from the protocol',
         lambda item: departures(item.row.changes, item.row.config)),
    text('search',
         lambda item: item.row.search.text if item.row.search else ''),
    text('notes', _notes, strong=lambda item: True))
# Columns that a table has only if a row has a text there.
_OPTIONAL = ('steps to 95%', 'changed from the protocol', 'search', 'searched',
             'data', 'notes')
# Columns of the details.
DETAILS = (
    _NAME,
    text('protocol', 'table.title'),
    numbers('place', 'place', count),
    text('no different from places',
         lambda item: NONE if item.like is None else ranges(item.like)),
    text('family', 'family'),
    percents('best %', lambda item: max(item.row.accuracies, default=None)),
    numbers('standard deviation', 'deviation', percent),
    percents('val accuracy %', 'val_accuracy'),
    numbers('test loss', 'test_loss', formats.decimals),
    *(percents(f'macro {name} %', lambda item, name=name: item.row.average(
        'test', name.lower())) for name in ('precision', 'recall', 'F1')),
    numbers('test examples',
            lambda item: item.row.sample and item.row.sample.examples, count),
    text('answers', _answers),
    _each('data', lambda run: run.data_origin or ''),
    _setting('encoder', 'pooling'),
    _setting('encoder', 'head'),
    numbers('x Transformer', 'relative_parameters', formats.ratio),
    numbers('mixer parameters',
            lambda item: item.row.largest('mixer_params'), count),
    numbers('steps', 'steps', count),
    _setting('train', 'select', 'checkpoint'),
    Column('best step', lambda item: _by_seed(
        count(run.best_step) for run in item.row.runs)),
    *(_per_device(f'{name} s', formats.quantity, f'{name}_seconds')
      for name in ('train', 'eval', 'compile')),
    _per_device('peak GiB', formats.gib, 'peak_memory_bytes'),
    text('device', lambda item: _by_seed(item.row.devices)),
    _each('dtype', lambda run: run.dtype),
    # Flags may change the program of a kernel.
    _each('kernel', lambda run: ' '.join(
        [run.kernel or '', *run.xla_flags]).strip()),
    text('searched', _grid),
    _each('commit', _version))
# Columns of a row beside the published score of its mechanism and protocol.
COMPARED = (
    _NAME,
    percents('here %', 'accuracy'),
    _INTERVAL,
    _SEEDS,
    numbers('published %', 'published', percent),
    Column('deviation', lambda item: points(item.off, item.digits)),
    Column('its 95% interval', lambda item: ' to '.join(
        points(x, item.digits) for x in item.bounds)),
    text('here is', lambda item: (
        'lower' if item.bounds[1] < 0 else 'higher' if item.bounds[0] > 0 else
        'not different')),
    text('as', lambda item: f'{item.paper.model}, {item.paper.source}, '
         f'{item.paper.evidence}'))
# Columns of a `frame.Baseline`.
BASELINES = (
    text('baseline', 'name'),
    numbers('accuracy %', 'accuracy', percent),
    text('how', 'how'))
# Columns of an `inputs.Published`.
PUBLISHED = (
    text('model', 'model',
         link=lambda paper: f'https://arxiv.org/abs/{paper.arxiv}'),
    *(Column(title, lambda paper, name=name: paper.scores[name])
      for name, title in inputs.SCORES.items()),
    *(numbers(f'mean of {len(tasks)}', lambda paper, tasks=tasks: paper.mean(
        tasks), percent) for tasks in inputs.AVERAGES),
    text('source', lambda paper: paper.source + (
        '' if paper.evidence == 'primary' else f', {paper.evidence}')))


class Pairs(NamedTuple):
  """How many pairs of rows differ, of how many."""
  total: int
  differ: int
  spread: statistics.Spread | None


class ScoreTable(NamedTuple):
  """The rows of a task that can be compared.

  `unbeaten` has (name, accuracy) of their baselines if no row is better,
  `twins` the names of rows with the same answers, `compared` rows beside
  published scores.
  """
  key: TableKey
  unbeaten: Sequence[tuple[str, float]]
  table: Table
  pairs: Pairs | None
  twins: Sequence[Sequence[str]]
  compared: Table | None


def scores(board: Board, papers: Sequence[Published]) -> list[ScoreTable]:
  """Returns the tables of a task, beside the published results `papers`."""
  found = []
  for key, rows in board.tables().items():
    members = lines(rows)
    compared = () if key.departures else _beside(
        members, papers, board.task.name, key.protocol)
    found.append(ScoreTable(
        key, sorted({(row.baseline_name, row.baseline)
                     for row in none_above(members)}),
        without_empty(SCORES, members), _pairs(members, board.spreads.get(key)),
        _twins(members), without_empty(COMPARED, compared) if compared else None
    ))
  return found


def published(papers: Sequence[Published]) -> dict[str, Table]:
  """Returns the tables of published results by protocol."""
  return {name: Table(PUBLISHED, [p for p in papers if p.protocol == name])
          for name in sorted({paper.protocol for paper in papers})}


def baselines(board: Board) -> Table | None:
  """Returns the baselines of a task, lowest first; None without any."""
  return Table(BASELINES, board.baselines) if board.baselines else None


def details(board: Board) -> Table:
  """Returns further columns; `head` is one of tasks of two documents only."""
  return without_empty([c for c in DETAILS if (
      board.task.dual or c.name != 'head')], lines(board.rows))


def none_above(rows: Sequence) -> list:
  """Returns the rows with a baseline, if none is significantly better.

  Rows on other data than the rest count only if there are no others.
  """
  known = [row for row in rows if row.above is not None]
  known = [row for row in known if not (row.foreign or row.apart)] or known
  above = any(row.differs_from_baseline and row.above > 0 for row in known)
  return [] if above else known


def _beside(members, papers, task, protocol):
  """Returns rows with published scores, each as one run on other examples."""
  return [types.SimpleNamespace(
      **vars(row), paper=paper, published=score, off=row.accuracy - score,
      bounds=statistics.difference(row.row.sample, Sample(
          (score,), row.row.sample.examples)))
          for row in members if row.seeds for paper in papers
          if (score := paper.score(task)) is not None
          and (paper.here, paper.protocol) == (row.model, protocol)]


def _pairs(rows, spread):
  ranked = [row for row in rows if row.rank is not None]
  if len(ranked) < 2:
    return None
  return Pairs(
      len(ranked) * (len(ranked) - 1) // 2,
      (len(ranked)**2 - sum(len(row.like) for row in ranked)) // 2,
      spread)


def _twins(rows):
  same = {}
  for row in rows:
    kept = [(run.seed, run.test.loss, run.test.correct)
            for run in row.row.finished]
    if kept and all(correct for _, _, correct in kept):
      same.setdefault(tuple(kept), []).append(row.name)
  return [names for names in same.values() if len(names) > 1]
