"""Checks a record before it is sent to the leaderboard: `board --check=FILE`.
"""

import hashlib
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from lra import models
from lra.board import publish, rows, store
from lra.core import machine, paths
from lra.schema import identity, result, scores
from lra.schema.record import InvalidRecord
from lra.schema.result import Result


class Check(NamedTuple):
  """One check of a record.

  Attributes:
    name: what was checked, one word.
    passed: whether the record may be sent, as far as this check goes.
    what: what was found; if it failed, a sentence with the remedy.
  """
  name: str
  passed: bool
  what: str


def check(path: pathlib.Path, results: pathlib.Path) -> list[Check]:
  """Returns the checks of a record; a malformed record fails the only one.

  Args:
    path: the record.
    results: folder of the leaderboard's records (`runs/`) and baselines
      (`floors/`).

  Raises:
    UserError: the file is missing.
  """
  try:
    run = result.read(path)
  except InvalidRecord as error:
    return [Check('form', False, str(error))]
  checks = [Check('form', True, 'every field is valid, and the scores agree '
                  'with each other')]
  for name, faults, fine in (
      ('name', _name(run, path), run.record_path.as_posix()),
      ('scores', _scores(run), run.status),
      ('settings', _settings(run), _departures(run)),
      ('code', _code(run), f'commit {(run.git_commit or "")[:8]} is published'),
      ('data', _data(run, results), f'{run.data_fingerprint[:8]}, those of the '
       'baselines'),
      ('privacy', _privacy(run), 'no path of your machine'),
      ('others', _others(run, path, results), 'no record contradicts it')):
    faults = list(faults)
    checks += [Check(name, False, fault) for fault in faults] or [
        Check(name, True, fine)]
  return checks


def _name(run, path) -> Iterator[str]:
  if path.resolve().parts[-2:] != run.record_path.parts:
    yield (f'the file should be {run.record_path.as_posix()}: take the one '
           'that the run has written to runs/ of --results_dir.')


def _scores(run):
  if not run.finished:
    yield (f'the status is {run.status!r}: run the same command again until '
           'the run has finished.')
  elif run.objective == scores.CLASSIFICATION and run.test and (
      not run.test.correct):
    yield ('it does not store which test examples were right: repeat the run '
           'with this version.')


def _settings(run: Result):
  """Yields what is wrong with the settings, or with the list of changed ones.
  """
  settings = store.protocol_settings(run.task, run.protocol)
  if not settings:
    yield (f'the protocol {run.protocol} of {run.task} is unknown here: add it '
           'to configs/protocols/ in the same pull request.')
  if run.model not in models.names():
    yield (f'the model {run.model} is unknown here: add its two files in the '
           'same pull request.')
  if run.changes is None:
    yield 'it does not list the settings that it changes: repeat the run.'
    return
  changed = identity.changes(run.config, settings)
  hidden = sorted(set(changed) - set(run.changes))
  if hidden:
    departures = rows.departures(
        {name: changed[name] for name in hidden}, run.config)
    yield (f"{departures}, but its 'changes' do not name this: repeat the run "
           'with the present protocol.')
  unfounded = sorted(set(run.changes) & set(settings) - set(changed))
  if unfounded:
    yield (f"its 'changes' name {rows.listed(unfounded)}, which the protocol "
           'sets to this very value: repeat the run with the present protocol.')


def _departures(run):
  if not run.changes:
    return f'those of the protocol {run.protocol}'
  return ('a row in a table of its own: '
          + rows.departures(run.changes, run.config))


def _code(run: Result):
  """Yields why others could not check out the code of the run."""
  if run.git_commit is None:
    yield 'no commit is known: train in a clone of the repository.'
    return
  if run.git_dirty is not False:
    yield ('the code was modified or not committed: commit it, push it and '
           'repeat the run.')
  for commit in run.git_commits or [run.git_commit]:
    if not machine.is_commit(commit):
      yield (f'commit {commit[:8]} is not in this clone: fetch it, or push it '
             'from where the run was made.')
      continue
    if machine.published(commit) is not True:
      yield (f'commit {commit[:8]} is not on the published branch: push it '
             'before you send the record.')
  # In an older commit, a variant may have had a file of its own.
  found = {name: machine.file_at(
      (run.git_commits or [run.git_commit])[-1], f'lra/models/{name}.py')
           for name in (models.place(run.model)[0], run.model)}
  digests = [hashlib.sha256(code).hexdigest()
             for code in found.values() if code is not None]
  if digests and run.model_sha256 not in (None, *digests):
    yield (f'lra/models/{next(iter(found))}.py of its commit is not the file '
           'that ran: commit that file and repeat the run.')


def _data(run, results):
  found = {one.fingerprint: one.task for folder in (
      results, paths.PACKAGED) for one in store.read_baselines(
          folder / 'floors')[0] if one.task == run.task}
  if run.data_fingerprint not in found:
    yield (f'the data {run.data_fingerprint[:8]} are not those of the '
           f'baselines of {run.task} ({rows.listed(sorted(found)) or "none"}): '
           f'prepare them with python -m lra.data_prep --task={run.task}.')


def _privacy(run):
  if publish.shared(run) != run:
    yield ('it holds paths of your machine: take the record that --record '
           'writes, not the result.json of the run.')


def _others(run, path, results):
  runs = results / 'runs'
  kept = runs / run.record_path
  if kept.exists() and not kept.samefile(path):
    yield (f'{kept} is another record of the same run: send it only if it '
           'replaces that one, and say so in the pull request.')
  if getattr(run, 'objective', '') in scores.CLASSIFIERS:
    for one in store.contradictions(runs, run):
      yield f'{one.name} would be left out, since {one.why}.'
