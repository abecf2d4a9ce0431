"""Records the origin of a run: commit, files and changes to the protocol.

The files are those of the model and of the config.
"""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from lra import files, models
from lra.errors import UserError
from lra.system import machine
from lra.system.terminal import say

_NAMED = 3  # run directories in a message
# Warnings about runs whose model file was edited since.
FINISHED = 'the score is of the old file, delete the folder to train anew'
GOES_ON = ('training resumes with the new file, delete the folder to train '
           'anew')
LOADED = ('the new file uses parameters that were trained with the old one, so '
          'scores may differ from the recorded ones')


@dataclasses.dataclass(frozen=True)
class Command:
  """Holds the facts about a run that only its command has.

  Attributes:
    config_file: the file that made its config, None for none.
    changes: maps a config, as plain values, to its settings that differ from
      the protocol, {field: the protocol's value}; None if nothing is compared.
    recorded: whether a run of it will be published.
  """
  config_file: pathlib.Path | None = None
  changes: Callable[[dict], dict[str, Any]] | None = None
  recorded: bool = False


_command = Command()


def begin(command: Command) -> None:
  """Sets the command by which this process makes its runs."""
  global _command
  _command = command


def of_model(name: str) -> dict:
  """Returns the origin of a run of this model, for its result.

  Call it when a run begins: files may change later.

  Returns:
    `git_commit`, `git_dirty`, `git_published`, `model_sha256`,
    `config_sha256`; see `lra.records.result.Result`.
  """
  made_by = {'model': _file_of(name), 'config': _command.config_file}
  state = machine.git_state([path for path in made_by.values() if path])
  if _command.recorded and state['git_published'] is False:
    say(f'Commit {state["git_commit"][:8]} is not on the published branch, and '
        'the records will show that: push it first, so that others can check '
        'out the code of the runs.')
  return {
      **state,
      **{f'{kind}_sha256': _sha256(path) for kind, path in made_by.items()}}


def changes(config: dict) -> dict[str, Any] | None:
  """Returns the changes of a config to its protocol, None if unknown."""
  return _command.changes and _command.changes(config)


def continued(before: dict, now: dict) -> dict:
  """Merges the origin of a resumed run with that of its earlier processes.

  Args:
    before: the content of env.json, with the origin of those processes.
    now: the origin of this process, from `of_model`.

  Returns:
    `now` with these changes. `git_commits` has all commits, the first one
    first, if there are several. `git_dirty` is true if any of them was, or if
    the file of the model or config has changed. `git_published` is true if all
    of them are. `devices` has all kinds, if there are several. `xla_flags` has
    all flags. `draws` names both values if they differ.
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
  """Returns the `model_sha256` in a run directory, None if there is none."""
  try:
    kept = files.read_json(folder / 'env.json')
  except UserError:
    return None  # code that needs the file raises the error
  return kept.get('model_sha256') if isinstance(kept, dict) else None


def warn_of_edits(
    runs: Iterable[tuple[pathlib.Path, str, str | None]], what: str) -> None:
  """Warns about runs whose model file has changed.

  The config's file does not matter: if it changes the config, it makes another
  run.

  Args:
    runs: run directory, model and `model_sha256` of each; runs without the
      hash are skipped.
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
    say(f'lra/models/{model}.py has changed since {named} {were} made: '
        f'{what}.')


def _file_of(name):
  return models.FOLDER / f'{name}.py'


def _sha256(path):
  """Returns the hex digest of a file, None if it cannot be read."""
  try:
    return path and hashlib.sha256(files.read(path)).hexdigest()
  except OSError:
    return None
