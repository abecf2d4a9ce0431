"""Finds the run that a path names, and describes a run that others start from.
"""

import pathlib
import re

from lra import files, paths
from lra.config import identity
from lra.errors import UserError


def folder(config) -> pathlib.Path:
  """Returns the path of `config.init_from`, with the seed for `{seed}`."""
  named = config.init_from.replace('{seed}', str(config.seed))
  return pathlib.Path(paths.local(named, 'config.init_from'))


def fingerprint(path: pathlib.Path) -> str:
  """Returns the hash of a run's config, and the checkpoint that is named.

  Runs with different seeds have one fingerprint, so the runs that start from
  them share a row of the leaderboard. A path does not matter.

  Args:
    path: see `place`.

  Raises:
    UserError: the path is not that of a run, or the run is not finished and the
      path names no step.
  """
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
  raise UserError(
      f'{folder} is not the directory of a run, nor a checkpoint in one: give '
      'a directory with a config.json, such as '
      'runs/listops_mini/simpletron/<config hash>-s0, or its checkpoints/best, '
      'checkpoints/last or a step in one of these.')
