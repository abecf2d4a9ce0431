"""Tables and their columns as data, which both templates draw."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lra.formats import (
    NONE,
    count,
    decimals,
    gib,
    percent,
    points,
    quantity,
    ranges,
    ratio,
)
from lra.report.published import AVERAGES
from lra.report.published import SCORES as SCORE_TITLES
from lra.report.variants import departures


@dataclasses.dataclass(frozen=True)
class Column:
  """One column of a table.

  Attributes:
    name: its heading.
    text: row -> its text, without any markup, '' for nothing.
    number: whether it has numbers, aligned to the right.
    strong: row -> whether the text should catch the eye.
    value: row -> its sort key: a number or None in a column of numbers, else
      the text.
    link: row -> address of the text's link; None for no links.
  """
  name: str
  text: Callable[[Any], str]
  number: bool
  strong: Callable[[Any], bool]
  value: Callable[[Any], float | str | None]
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


def _never(item):
  return False


def text_column(name, text, strong=_never):
  return Column(name, text, False, strong, value=text)


def _numbers(name, value, show, strong=_never):
  """Returns a column of one number of each row, formatted by `show`."""
  return Column(name, lambda item: show(value(item)), True, strong, value)


def _percents(name, value):
  """Returns a column of fractions of `row.Row`s, as percentages."""
  return Column(name, lambda row: percent(value(row), row.digits), True, _never,
                value)


def _setting(section, name):
  return lambda row: row.setting(section, name)


def _by_seed(texts):
  """Joins the texts of the seeds of a row; one text if all are equal."""
  texts = list(texts)
  if len(set(texts)) < 2:
    return texts[0] if texts else ''
  return ' / '.join(text or NONE for text in texts)


def _each(field):
  return lambda row: _by_seed(getattr(run, field) or '' for run in row.runs)


def _largest(field):
  return lambda row: row.largest(field)


def _per_device(name, show, field):
  """Returns a column: the mean if all seeds ran on one device, else each."""
  return Column(
      name, lambda row: _by_seed(map(show, row.per_device(field))), True,
      _never, lambda row: _first(row.per_device(field)))


def _first(values):
  return next((value for value in values if value is not None), None)


def _average(split, field):
  return lambda row: row.average(split, field)


def _mean(row):
  return row.mean


def _interval(row):
  known = row.interval
  if known is None:
    return NONE
  ends = ' to '.join(percent(x, row.digits) for x in (known.low, known.high))
  return ends if known.over_seeds else f'{ends} *'


def _low(row):
  return row.interval and row.interval.low


def _above_baseline(row):
  text = points(row.above_baseline, row.digits)
  by_chance = row.above_baseline is not None and not row.off_baseline
  return f'{text} n.s.' if by_chance else text


def _seeds(row):
  done, all_of_them = len(row.finished), len(row.runs)
  return f'{done}' if done == all_of_them else f'{done} of {all_of_them}'


def _commits(row):
  return _by_seed(map(_version, row.runs))


def _version(run):
  """Returns the commit, and hashes of the files if it does not fix the code."""
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


def _changes(row):
  return departures(row.changes, row.config)


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


def _answers(row):
  """Returns whether records store which examples were right."""
  if row.sample is None:
    return ''
  return 'not kept' if row.sample.correct is None else 'kept'


def _failure(run):
  what = {'diverged': f'diverged at step {run.steps:,}',
          'oom': 'ran out of memory',
          'stopped': f'stopped at step {run.steps:,}'}[run.status]
  return f'seed {run.seed} {what}'


def _best_steps(row):
  return [run.best_step for run in row.runs]


def _learnt_step(row):
  """Returns the largest learnt step of the seeds, None if one lacks it."""
  steps = [run.learnt_step for run in row.runs]
  return None if None in steps else max(steps, default=None)


def _ranks(row):
  return ranges(range(row.rank.first, row.rank.last + 1)) if row.rank else NONE


def _place(row):
  return row.rank and row.rank.place


def _like(row):
  return ranges(row.rank.like) if row.rank else NONE


_RANK = Column(
    'rank', _ranks, True, _never, lambda row: row.rank and row.rank.first)
_NAME = text_column('model', lambda row: row.name)
_ACCURACY = _percents('accuracy %', _mean)
_INTERVAL = Column('95% interval', _interval, True, _never, _low)
_ABOVE_BASELINE = Column(
    'above baseline', _above_baseline, True, _never,
    lambda row: row.above_baseline)
_SEEDS = Column('seeds', _seeds, True, _never, lambda row: len(row.finished))

# Columns of a `row.Row`.
SCORES = (
    _RANK,
    _NAME,
    _ACCURACY,
    _INTERVAL,
    _ABOVE_BASELINE,
    _SEEDS,
    _numbers('steps to 95%', _learnt_step, count),
    _numbers('parameters', lambda row: row.params, count,
             strong=lambda row: row.heavy),
    text_column('changed from the protocol', _changes),
    text_column('notes', _notes, strong=lambda row: True),
)
# Columns that a table has only if a row has a text there.
OPTIONAL = ('steps to 95%', 'changed from the protocol', 'data', 'notes')
# Columns of tasks of two documents.
PAIRS = ('head',)

# Columns of a `row.Row` in the details.
DETAILS = (
    _NAME,
    text_column('protocol', lambda row: row.table.title),
    _numbers('place', _place, count),
    text_column('no different from places', _like),
    text_column('family', lambda row: row.family),
    _percents('best %', lambda row: row.best),
    Column('standard deviation', lambda row: percent(row.deviation, 2), True,
           _never, lambda row: row.deviation),
    _percents('val accuracy %', _average('val', 'accuracy')),
    _numbers('test loss', _average('test', 'loss'), decimals),
    _percents('macro precision %', _average('test', 'precision')),
    _percents('macro recall %', _average('test', 'recall')),
    _percents('macro F1 %', _average('test', 'f1')),
    _numbers('test examples', lambda row: row.sample and row.sample.examples,
             count),
    text_column('answers', _answers),
    text_column('data', _each('data_origin')),
    text_column('pooling', _setting('encoder', 'pooling')),
    text_column('head', _setting('encoder', 'head')),
    _numbers('x Transformer', lambda row: row.ratio, ratio),
    _numbers('mixer parameters', _largest('mixer_params'), count),
    _numbers('steps', _largest('steps'), count),
    text_column('checkpoint', _setting('train', 'select')),
    Column('best step', lambda row: _by_seed(map(count, _best_steps(row))),
           True, _never, lambda row: _first(_best_steps(row))),
    _per_device('train s', quantity, 'train_seconds'),
    _per_device('eval s', quantity, 'eval_seconds'),
    _per_device('compile s', quantity, 'compile_seconds'),
    _per_device('peak GiB', gib, 'peak_memory_bytes'),
    text_column('device', lambda row: _by_seed(row.devices)),
    text_column('dtype', _each('dtype')),
    text_column('kernel', lambda row: _by_seed(map(_kernel, row.runs))),
    text_column('commit', _commits),
)


def _of_row(column):
  """Returns the column for items that hold a row."""
  return dataclasses.replace(
      column, text=lambda item: column.text(item.row),
      strong=lambda item: column.strong(item.row),
      value=lambda item: column.value(item.row))


def _deviation(item):
  return ' to '.join(points(x, item.row.digits) for x in item.bounds)


# Columns of a `published.Compared`.
COMPARED = (
    _of_row(_NAME),
    _of_row(dataclasses.replace(_ACCURACY, name='here %')),
    _of_row(_INTERVAL),
    _of_row(_SEEDS),
    _numbers('published %', lambda item: item.accuracy, percent),
    Column('deviation', lambda item: points(item.deviation, item.row.digits),
           True, _never, lambda item: item.deviation),
    Column('its 95% interval', _deviation, True, _never,
           lambda item: item.bounds[0]),
    text_column('here is', lambda item: item.verdict),
    text_column('as', lambda item: f'{item.paper.model}, {item.paper.source}, '
           f'{item.paper.evidence}'),
)

# Columns of a `rows.Baseline`.
BASELINES = (
    text_column('baseline', lambda baseline: baseline.name),
    _numbers('accuracy %', lambda baseline: baseline.accuracy, percent),
    text_column('how', lambda baseline: baseline.how),
)

# Columns of a `published.Published`.
PUBLISHED = (
    dataclasses.replace(
        text_column('model', lambda paper: paper.model),
        link=lambda paper: f'https://arxiv.org/abs/{paper.arxiv}'),
    *(Column(title, lambda paper, name=name: paper.scores[name], True, _never,
             lambda paper, name=name: paper.score(name))
      for name, title in SCORE_TITLES.items()),
    *(_numbers(f'mean of {len(tasks)}', lambda paper, tasks=tasks: paper.mean(
        tasks), percent) for tasks in AVERAGES),
    text_column('source', lambda paper: paper.source + (
        '' if paper.evidence == 'primary' else f', {paper.evidence}')),
)


def told(shown: Iterable[Column], items: Sequence) -> Table:
  """Returns a table without the optional columns that are empty."""
  return Table([c for c in shown if c.name not in OPTIONAL or any(
      c.text(item) not in ('', NONE) for item in items)], items)
