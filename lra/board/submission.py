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
  """One check of a record: its name, a word; whether it passed; and what was
  found, if it failed with the remedy.
  """
  name: str
  passed: bool
  what: str


def check(path: pathlib.Path, results: pathlib.Path) -> list[Check]:
  """Returns the checks of a record; a malformed record fails the only one.

  The folder `results` has the leaderboard's records and baselines.
  """
  try:
    run = result.read(path)
  except InvalidRecord as error:
    return [Check('form', False, str(error))]
  faults = [*_form(run, path), *_settings(run), *_code(run),
            *_beside(run, path, results)]
  return [
      Check('form', True, 'every field is valid, and the scores agree with '
            'each other'), *(
      one for name, fine in (
          ('name', run.record_path.as_posix()), ('scores', run.status),
          ('settings', 'a row in a table of its own: ' + rows.departures(
              run.changes, run.config) if run.changes else
           f'those of the protocol {run.protocol}'),
          ('code', f'commit {(run.git_commit or "")[:8]} is published'),
          ('data', f'{run.data_fingerprint[:8]}, those of the baselines'),
          ('privacy', 'no path of your machine'),
          ('others', 'no record contradicts it'))
      for one in [Check(name, False, fault) for kind, fault in faults
                  if kind == name] or [Check(name, True, fine)])]


def _form(run: Result, path) -> Iterator[tuple[str, str]]:
  """Yields (check, fault) of a record by itself, as the other functions do."""
  if path.resolve().parts[-2:] != run.record_path.parts:
    yield 'name', (
        f'the file should be {run.record_path.as_posix()}: take the one that '
        'the run has written to runs/ of --results_dir.')
  if not run.finished:
    yield 'scores', (f'the status is {run.status!r}: run the same command '
                     'again until the run has finished.')
  elif run.objective == scores.CLASSIFICATION and run.test and (
      not getattr(run.test, 'correct', '')):
    yield 'scores', ('it does not store which test examples were right: repeat '
                     'the run with this version.')
  if publish.shared(run) != run:
    yield 'privacy', ('it holds paths of your machine: take the record that '
                      '--record writes, not the result.json of the run.')


def _settings(run: Result):
  settings = store.protocol_settings(run.task, run.protocol)
  if not settings:
    yield 'settings', (
        f'the protocol {run.protocol} of {run.task} is unknown here: add it to '
        'configs/protocols/ in the same pull request.')
  if run.model not in models.names():
    yield 'settings', (f'the model {run.model} is unknown here: add its two '
                       'files in the same pull request.')
  if run.changes is None:
    yield 'settings', ('it does not list the settings that it changes: repeat '
                       'the run.')
    return
  changed = identity.changes(run.config, settings)
  hidden = sorted(set(changed) - set(run.changes))
  if hidden:
    departures = rows.departures(
        {name: changed[name] for name in hidden}, run.config)
    yield 'settings', (
        f"{departures}, but its 'changes' do not name this: repeat the run "
        'with the present protocol.')
  unfounded = sorted(set(run.changes) & set(settings) - set(changed))
  if unfounded:
    yield 'settings', (
        f"its 'changes' name {rows.listed(unfounded)}, which the protocol "
        'sets to this very value: repeat the run with the present protocol.')


def _code(run: Result):
  if run.git_commit is None:
    yield 'code', 'no commit is known: train in a clone of the repository.'
    return
  if run.git_dirty is not False:
    yield 'code', ('the code was modified or not committed: commit it, push it '
                   'and repeat the run.')
  commits = run.git_commits or [run.git_commit]
  for commit in commits:
    if not machine.is_commit(commit):
      yield 'code', (f'commit {commit[:8]} is not in this clone: fetch it, or '
                     'push it from where the run was made.')
    elif machine.published(commit) is not True:
      yield 'code', (f'commit {commit[:8]} is not on the published branch: '
                     'push it before you send the record.')
  # In an older commit, a variant may have had a file of its own.
  files = [f'lra/models/{name}.py'
           for name in (models.place(run.model)[0], run.model)]
  digests = [hashlib.sha256(code).hexdigest() for file in files
             if (code := machine.file_at(commits[-1], file)) is not None]
  if digests and run.model_sha256 not in (None, *digests):
    yield 'code', (f'{files[0]} of its commit is not the file that ran: commit '
                   'that file and repeat the run.')


def _beside(run: Result, path, results):
  """Yields faults beside the baselines and the other records."""
  known = {one.fingerprint for folder in (results, paths.PACKAGED)
           for one in store.read_baselines(folder / 'floors')[0]
           if one.task == run.task}
  if run.data_fingerprint not in known:
    yield 'data', (
        f'the data {run.data_fingerprint[:8]} are not those of the baselines '
        f'of {run.task} ({rows.listed(sorted(known)) or "none"}): prepare them '
        f'with python -m lra.data_prep --task={run.task}.')
  kept = results / 'runs' / run.record_path
  if kept.exists() and not kept.samefile(path):
    yield 'others', (
        f'{kept} is another record of the same run: send it only if it '
        'replaces that one, and say so in the pull request.')
  if run.objective in scores.CLASSIFIERS:
    for one in store.contradictions(results / 'runs', run):
      yield 'others', f'{one.name} would be left out, since {one.why}.'
