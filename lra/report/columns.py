"""The columns of the leaderboard's tables, as data for whatever draws them."""

import dataclasses
from collections.abc import Callable
from typing import Any

from lra.report.formats import (
  NONE,
  count,
  decimals,
  gib,
  percent,
  points,
  quantity,
  ratio,
)
from lra.report.row import mean
from lra.report.rows import departures


@dataclasses.dataclass(frozen=True)
class Column:
  """One column of a table.

  Attributes:
    name: its heading.
    text: what it says of a row, without any markup; '' for nothing.
    number: whether it is aligned to the right.
    strong: whether what it says of a row should catch the eye.
  """
  name: str
  text: Callable[[Any], str]
  number: bool = True
  strong: Callable[[Any], bool] = lambda item: False


def _texts(name, text, **options):
  return Column(name, text, number=False, **options)


def _setting(section, name):
  return lambda row: row.setting(section, name)


def _distinct(field):
  return lambda row: ' / '.join(row.distinct(field))


def _largest(field):
  return lambda row: count(row.largest(field))


def _per_device(show, field):
  return lambda row: ' / '.join(map(show, row.per_device(field)))


def _average(split, field):
  return lambda row: percent(row.average(split, field), row.digits)


def accuracy(row) -> str:
  """Its mean accuracy in percent, with the digits that its interval leaves."""
  return percent(row.mean, row.digits)


def _interval(row):
  known = row.interval
  if known is None:
    return NONE
  ends = ' to '.join(percent(x, row.digits) for x in (known.low, known.high))
  return ends if known.over_seeds else f'{ends} *'


def _above_floor(row):
  return points(None if row.mean is None or row.floor is None
                else row.mean - row.floor, row.digits)


def _seeds(row):
  done, all_of_them = len(row.finished), len(row.runs)
  return f'{done}' if done == all_of_them else f'{done} of {all_of_them}'


def _commits(row):
  return ' / '.join(sorted({_version(run) for run in row.runs} - {''}))


def _version(run):
  """The commit; where that does not say what ran, the files by their hashes."""
  commits = run.git_commits or [run.git_commit or '']
  commit = ' + '.join(text[:8] for text in commits)
  if commit and not run.git_dirty:
    return commit
  files = ', '.join(
      f'{what} {digest[:8]}' for what, digest in (
          ('model', run.model_sha256), ('config', run.config_sha256))
      if digest)
  if not commit:
    return files
  return f'{commit} (modified{files and ": "}{files})'


def _changes(row):
  return departures(row.changes, row.config)


def _notes(row):
  notes = [_failure(run) for run in row.runs if run.status != 'ok']
  if row.heavy:
    notes.append(f'{100 * (row.ratio - 1):+.1f}% parameters')
  if len(set(row.values('model_sha256'))) > 1:
    notes.append("seeds ran different versions of the model's file")
  if row.foreign:
    notes.append(
        f'data {row.data[:8]}, floors are of data {row.foreign[:8]}')
  return '; '.join(notes)


def _failure(run):
  what = {'diverged': f'diverged at step {run.steps:,}',
          'oom': 'ran out of memory',
          'stopped': f'stopped at step {run.steps:,}'}[run.status]
  return f'seed {run.seed} {what}'


def _best_steps(row):
  steps = {run.best_step for run in row.finished} - {None}
  return ' / '.join(map(count, sorted(steps)))


# Of a `row.Row`.
SCORES = (
    _texts('group', lambda row: row.letters),
    _texts('model', lambda row: row.model),
    _texts('variant', lambda row: row.variant),
    Column('accuracy %', accuracy),
    Column('95% interval', _interval),
    Column('above floor', _above_floor),
    Column('seeds', _seeds),
    Column('parameters', lambda row: count(row.params),
           strong=lambda row: row.heavy),
    _texts('changed from the protocol', _changes),
    _texts('notes', _notes, strong=lambda row: True),
)
# What a table has only where a row says something there.
OPTIONAL = ('variant', 'changed from the protocol', 'data', 'notes')
# What only tasks of two documents have.
PAIRS = ('head',)

# Of a `row.Row`.
DETAILS = (
    _texts('model', lambda row: row.model),
    _texts('variant', lambda row: row.variant),
    _texts('protocol', lambda row: row.table.title),
    Column('best %', lambda row: percent(row.best, row.digits)),
    Column('val accuracy %', _average('val', 'accuracy')),
    Column('test loss', lambda row: decimals(row.average('test', 'loss'))),
    Column('macro precision %', _average('test', 'precision')),
    Column('macro recall %', _average('test', 'recall')),
    Column('macro F1 %', _average('test', 'f1')),
    Column('test examples', lambda row: count(
        row.sample and row.sample.examples)),
    _texts('data', _distinct('data_origin')),
    _texts('pooling', _setting('encoder', 'pooling')),
    _texts('head', _setting('encoder', 'head')),
    Column('x Transformer', lambda row: ratio(row.ratio)),
    Column('mixer parameters', _largest('mixer_params')),
    Column('steps', _largest('steps')),
    _texts('checkpoint', _setting('train', 'select')),
    Column('best step', _best_steps),
    Column('train s', _per_device(quantity, 'train_seconds')),
    Column('eval s', _per_device(quantity, 'eval_seconds')),
    Column('compile s', _per_device(quantity, 'compile_seconds')),
    Column('peak GiB', _per_device(gib, 'peak_memory_bytes')),
    _texts('device', lambda row: ' / '.join(row.devices)),
    _texts('dtype', _distinct('dtype')),
    _texts('kernel', _distinct('kernel')),
    _texts('commit', _commits),
)


def made_of(rows) -> list[Column]:
  """What the accuracies of `row.Row`s are made of; nothing where none says.

  Shares of the answers that a simple rule gives too, then accuracies on the
  kinds of examples, means over seeds.
  """
  scores = [run.test for row in rows for run in row.finished]
  rules = sorted({name for test in scores for name in test.agreement})
  kinds = sorted({(name, len(value), value) for test in scores
                  for name, values in test.parts.items() for value in values})
  if not (rules or kinds):
    return []
  return [
      *DETAILS[:3], Column('accuracy %', accuracy),
      *(Column(f'as {rule} %', _over_seeds(
          lambda test, rule=rule: test.agreement.get(rule)))
        for rule in rules),
      *(Column(f'{name} {value} %', _over_seeds(
          lambda test, name=name, value=value: _accuracy(test, name, value)))
        for name, _, value in kinds)]


def _over_seeds(score):
  def text(row):
    scores = [score(run.test) for run in row.finished]
    return percent(mean([s for s in scores if s is not None]), row.digits)
  return text


def _accuracy(test, name, value):
  part = test.parts.get(name, {}).get(value)
  return part and part.accuracy


# Of a `published.Compared`.
COMPARED = (
    _texts('model', lambda item: item.row.model),
    Column('here %', lambda item: accuracy(item.row)),
    Column('95% interval', lambda item: _interval(item.row)),
    Column('seeds', lambda item: _seeds(item.row)),
    Column('published %', lambda item: percent(item.accuracy)),
    Column('deviation', lambda item: points(item.deviation, item.row.digits)),
    _texts('published is', lambda item: (
        'inside the interval' if item.inside else 'outside the interval')),
    _texts('as', lambda item: f'{item.paper.model}, {item.paper.source}, '
           f'{item.paper.evidence}'),
)

# Of a `rows.Floor`.
FLOORS = (
    _texts('floor', lambda floor: floor.name),
    Column('accuracy %', lambda floor: percent(floor.accuracy)),
    _texts('how', lambda floor: floor.how),
)
