"""Finds the run that a path names, and describes a run that others start from.
"""

import pathlib
import re

from lra.core import files, paths
from lra.core.errors import UserError, meant
from lra.run import bert, loader
from lra.schema import grid, identity
from lra.schema.fields import FIELDS


def experiment(config):
  """Returns the experiment of the source; None if it is a path, or missing.

  It is that of the config in `config.init_from`, or the first phase that
  `config.pretrain` describes. Its seed is that of the config.

  Raises:
    UserError, flags.Error: the words make no config.
  """
  from lra.run.experiment import resolve  # imports this file
  if config.pretrain.objective:
    return resolve(_first_phase(config))
  if not identity.names_config(config.init_from):
    return None
  file, *changes = grid.words(config.init_from)
  return resolve(loader.made_by([
      f'--config={file}', *(f'--config.{change}' for change in changes),
      f'--config.seed={config.seed}']), made_by=file)


def _first_phase(config):
  """Returns the config with another objective and its own steps and rate."""
  made = config.copy_and_resolve_references()
  phase = made.pretrain
  made.objective, made.init_source = phase.objective, ''
  made.train.masked_loss = FIELDS['train.masked_loss'].default
  made.train.steps = phase.steps or made.train.steps
  if phase.learning_rate >= 0:
    made.train.learning_rate = phase.learning_rate
  made.pretrain = {name: FIELDS[f'pretrain.{name}'].default for name in phase}
  return made


def folder(config) -> pathlib.Path:
  """Returns the path of the source of a config, which may not exist."""
  made = experiment(config)
  if made:
    return made.folder
  named = config.init_from.replace('{seed}', str(config.seed))
  return pathlib.Path(paths.local(named, 'config.init_from'))


def fingerprint(config) -> str:
  """Returns the value of `config.init_source`.

  It is the hash of the source's config, and the checkpoint if the path names
  one; for a BERT it is the hash of its weights. Runs with different seeds have
  one hash, so the runs that start from them share a row of the leaderboard. The
  path does not matter.

  Raises:
    UserError: the path is not that of a run, or the words make no config.
  """
  made = experiment(config)
  return identity.config_hash(made.config.to_dict()) if made else (
      of_path(folder(config)))


def of_path(path: pathlib.Path) -> str:
  """Returns the fingerprint of a run; see `fingerprint` and `place`.

  Raises:
    UserError: it is no run, or the run is not finished and no step is named.
  """
  if not path.exists():
    raise UserError(f'config.init_from: {path} does not exist: restore the '
                    'folder of that run or BERT, or correct the path.')
  if bert.settings(path):
    return bert.fingerprint(path)
  run_folder, kind, step = place(path)
  if step is None and not (run_folder / 'result.json').exists():
    raise UserError(
        f'config.init_from: {run_folder} is not finished, so its parameters '
        'still change: finish it, or name a step, such as '
        'checkpoints/best/1000.')
  values = files.read_json(run_folder / 'config.json')
  return '/'.join(filter(None, (
      identity.config_hash(values), kind, '' if step is None else str(step))))


def place(folder):
  """Splits a path into (run directory, 'best', 'last' or '', step or None)."""
  path = folder.resolve()
  for run_folder in (path, *path.parents[:3]):
    inside = path.relative_to(run_folder).parts
    room, kind, step = (*inside, *('checkpoints', '', '')[len(inside):])
    if room != 'checkpoints' or kind not in ('', 'best', 'last') or (
        step and not (re.fullmatch('[0-9]+', step) and path.is_dir())):
      continue
    values = files.read_json(run_folder / 'config.json')
    if isinstance(values, dict) and 'task' in values:
      return run_folder, kind, int(step) if step else None
  close = _near(folder)
  raise UserError(
      f'{folder} is not the directory of a run, nor a checkpoint in one, nor '
      'a folder that `export` wrote, nor that of a BERT: ' + (
          f'did you mean {close}?' if close else
          'give a directory with a config.json, such as runs/listops_mini/'
          'simpletron/<config hash>-s0, or its checkpoints/best, '
          'checkpoints/last or a step in one of these.'))


def _near(folder):
  """Returns a run directory whose path is similar, or None."""
  found = pathlib.Path(folder.anchor)
  for part in folder.relative_to(folder.anchor).parts:
    names = sorted(path.name for path in found.glob('*'))
    found /= part if part in names else meant(part, names) or part
  return found if (found / 'config.json').exists() else None
