"""The columns of the leaderboard's tables, as data for whatever draws them."""

import dataclasses
from collections.abc import Callable
from typing import Any

from lra.report.formats import (
  count,
  decimals,
  gib,
  percent,
  points,
  quantity,
  ratio,
)
from lra.report.rows import departures, mean


@dataclasses.dataclass(frozen=True)
class Column:
  """One column of a table.

  Attributes:
    name: its heading.
    text: what it says of a row, without any markup; '' for nothing.
    number: whether it is aligned to the right.
    strong: whether what it says should catch the eye.
  """
  name: str
  text: Callable[[Any], str]
  number: bool = True
  strong: bool = False


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
  return lambda row: percent(row.average(split, field))


def _above_floor(row):
  return points(None if row.mean is None or row.floor is None
                else row.mean - row.floor)


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


# Of a `rows.Row`.
SCORES = (
    _texts('model', lambda row: row.model),
    _texts('changed from the protocol', _changes),
    _texts('variant', lambda row: row.variant),
    _texts('data', _distinct('data_origin')),
    _texts('pooling', _setting('encoder', 'pooling')),
    _texts('head', _setting('encoder', 'head')),
    Column('mean %', lambda row: percent(row.mean)),
    Column('best %', lambda row: percent(row.best)),
    Column('above floor', _above_floor),
    Column('seeds', _seeds),
    Column('params', lambda row: count(row.params)),
    Column('x Transformer', lambda row: ratio(row.ratio)),
    Column('mixer params', _largest('mixer_params')),
    Column('steps', _largest('steps')),
    Column('steps/s', _per_device(quantity, 'steps_per_s')),
    Column('peak GiB', _per_device(gib, 'peak_memory_bytes')),
    _texts('device', lambda row: ' / '.join(row.devices)),
    _texts('dtype', _distinct('dtype')),
    _texts('kernel', _distinct('kernel')),
    _texts('commit', _commits),
    _texts('notes', _notes, strong=True),
)
# What only tasks of two documents have.
PAIRS = ('head',)
# What only tables of runs with changed settings have.
CHANGED = ('changed from the protocol',)
# What only tables of runs have that say what their data was made of.
ORIGIN = ('data',)

# Of a `rows.Row` with finished runs.
DETAILS = (
    _texts('model', lambda row: row.model),
    _texts('variant', lambda row: row.variant),
    _texts('protocol', lambda row: row.table.title),
    Column('val accuracy %', _average('val', 'accuracy')),
    Column('test loss', lambda row: decimals(row.average('test', 'loss'))),
    Column('macro precision %', _average('test', 'precision')),
    Column('macro recall %', _average('test', 'recall')),
    Column('macro F1 %', _average('test', 'f1')),
    Column('test examples', lambda row: count(row.finished[0].test.examples)),
    _texts('checkpoint', _setting('train', 'select')),
    Column('best step', _best_steps),
    Column('tokens/s', _per_device(quantity, 'tokens_per_s')),
    Column('train s', _per_device(quantity, 'train_seconds')),
    Column('eval s', _per_device(quantity, 'eval_seconds')),
    Column('compile s', _per_device(quantity, 'compile_seconds')),
)



def made_of(rows) -> list[Column]:
  """What the accuracies of `rows.Row`s are made of; nothing where none says.

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
      *DETAILS[:3], Column('mean %', lambda row: percent(row.mean)),
      *(Column(f'as {rule} %', _over_seeds(
          lambda test, rule=rule: test.agreement.get(rule)))
        for rule in rules),
      *(Column(f'{name} {value} %', _over_seeds(
          lambda test, name=name, value=value: _accuracy(test, name, value)))
        for name, _, value in kinds)]


def _over_seeds(score):
  def text(row):
    scores = [score(run.test) for run in row.finished]
    return percent(mean([s for s in scores if s is not None]))
  return text


def _accuracy(test, name, value):
  part = test.parts.get(name, {}).get(value)
  return part and part.accuracy


# Of a `rows.Floor`.
FLOORS = (
    _texts('floor', lambda floor: floor.name),
    Column('accuracy %', lambda floor: percent(floor.accuracy)),
    _texts('how', lambda floor: floor.how),
)
