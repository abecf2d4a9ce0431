"""What a run is made by: a commit, the model's and the config's file, and what
of its settings is not the protocol's.
"""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from lra import files, machine, models
from lra.errors import UserError
from lra.terminal import say

_NAMED = 3  # run directories in a sentence
# What is to be known of runs whose model's file was edited since.
FINISHED = 'the score is of the old file, delete the folder to train anew'
GOES_ON = ('training goes on with the new file, delete the folder to train '
           'anew')
LOADED = ('the new file computes with parameters that the old one has trained, '
          'so scores may not be those that were recorded')


@dataclasses.dataclass(frozen=True)
class Command:
  """What only the command that makes a run knows of it.

  Attributes:
    config_file: the file that its config was made by, None for none.
    changes: a config, as plain values, to its settings that are not the
      protocol's, {field: the protocol's value}; None where nobody compares.
  """
  config_file: pathlib.Path | None = None
  changes: Callable[[dict], dict[str, Any]] | None = None


_command = Command()


def begin(command: Command) -> None:
  """Says by which command this process makes its run."""
  global _command
  _command = command


def of_model(name: str) -> dict:
  """Where a run of this model comes from, as its result keeps it.

  To be asked for when a run begins: files may change while it lasts.

  Returns:
    `git_commit`, `git_dirty`, `git_published`, `model_sha256`,
    `config_sha256`; see `lra.report.result.Result`.
  """
  made_by = {'model': _file_of(name), 'config': _command.config_file}
  return {
      **machine.git_state([path for path in made_by.values() if path]),
      **{f'{kind}_sha256': _sha256(path) for kind, path in made_by.items()}}


def warn_unpublished() -> None:
  """Says that records will name a commit which others cannot check out."""
  state = machine.git_state()
  if state['git_published'] is False:
    say(f'Commit {state["git_commit"][:8]} is not on the published branch, and '
        'the records will say so: push it first, so that others can check out '
        'what was run.')


def changes(config: dict) -> dict[str, Any] | None:
  """What a config of this process changes of its protocol, if that is known."""
  return _command.changes and _command.changes(config)


def continued(before: dict, now: dict) -> dict:
  """Where a run comes from that other processes have begun.

  Args:
    before: what env.json says of it, with what `of_model` gave them.
    now: what `of_model` gives this process.

  Returns:
    `now` and, where there were several, `git_commits`, the first one first;
    `git_dirty` of any of them, and where the file of the model or the config
    was another one; `git_published` if all of them are; `devices` likewise,
    where these were of several kinds; `xla_flags` of all; `draws` of both, if
    they are not the same.
  """
  commits = before.get('git_commits') or [before.get('git_commit')]
  commits = list(dict.fromkeys(c for c in (*commits, now['git_commit']) if c))
  other = any(
      before.get(name) not in (None, now[name])
      for name in ('model_sha256', 'config_sha256'))
  dirty = now['git_dirty']
  if dirty is not None:
    dirty = bool(dirty or before.get('git_dirty') or other)
  several = {'git_commits': commits} if len(commits) > 1 else {}
  published = before.get('git_published'), now.get('git_published')
  several['git_published'] = False if False in published else (
      None if None in published else True)
  devices = before.get('devices') or [before.get('device')]
  devices = list(dict.fromkeys(
      d for d in (*devices, now.get('device')) if d))
  if len(devices) > 1:
    several['devices'] = devices
  flags = [*(before.get('xla_flags') or []), *now.get('xla_flags', [])]
  if flags:
    several['xla_flags'] = list(dict.fromkeys(flags))
  drawn = before.get('draws', 'microbatch'), now.get('draws')
  if None not in drawn and drawn[0] != drawn[1]:
    several['draws'] = ', then '.join(drawn)
  return {**now, 'git_dirty': dirty, **several}


def of_folder(folder: pathlib.Path) -> str | None:
  """The `model_sha256` that a run directory has kept, None for none."""
  try:
    kept = files.read_json(folder / 'env.json')
  except UserError:
    return None  # whoever needs the file says what is wrong with it
  return kept.get('model_sha256') if isinstance(kept, dict) else None


def warn_of_edits(
    runs: Iterable[tuple[pathlib.Path, str, str | None]], what: str) -> None:
  """Names runs whose model's file is another one now.

  The config's file is no matter: what it changes is another config, of which
  the run would not be.

  Args:
    runs: run directory, model and `model_sha256` of each; of one that has not
      kept the hash nothing is said.
    what: FINISHED, GOES_ON or LOADED.
  """
  edited = {}
  for folder, model, digest in runs:
    if None not in (digest, now := _sha256(_file_of(model))) and digest != now:
      edited.setdefault(model, []).append(str(folder))
  for model, folders in edited.items():
    named = ', '.join(folders[:_NAMED])
    if len(folders) > _NAMED:
      named += f' and {len(folders) - _NAMED} more'
    were = 'were' if len(folders) > 1 else 'was'
    say(f'lra/models/{model}.py is another file than {named} {were} made with: '
        f'{what}.')


def _file_of(name):
  return models.FOLDER / f'{name}.py'


def _sha256(path):
  """Hex digest of a file, None where there is none to read."""
  try:
    return path and hashlib.sha256(files.read(path)).hexdigest()
  except OSError:
    return None
