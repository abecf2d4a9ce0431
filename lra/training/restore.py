"""The scored parameters of a run directory, without a change to it."""

import pathlib

import jax
from absl import logging
from ml_collections import ConfigDict

from lra import fields, files
from lra.errors import UserError
from lra.training import mesh, program, run
from lra.training.checkpoint import Checkpoints
from lra.training.progress import Progress, chosen


def scored(folder: pathlib.Path) -> tuple[program.Program, dict, int]:
  """The program of a run on one device, what it scores, and of which step.

  Raises:
    UserError: it is no run directory, has no checkpoint yet, or is damaged.
  """
  values = files.read_json(folder / 'config.json')
  if not isinstance(values, dict) or 'task' not in values:
    raise UserError(
        f'{folder} is not the directory of a run: give one that has '
        'config.json, such as runs/listops_mini/simpletron/<config hash>-s0.')
  try:
    made = program.make(_config(values), jax.devices()[:1],
                        dtype=run.environment(folder).get('dtype'))
  except UserError as e:
    raise UserError(
        f'{folder / "config.json"} is not the config of a run here: {e}') from e
  level = logging.get_verbosity()
  logging.set_verbosity(logging.ERROR)  # Orbax warns of reading only
  try:
    return made, *_restored(made, folder / 'checkpoints')
  finally:
    logging.set_verbosity(level)


def _config(values):
  """On one device; fields that are younger than the run say what it did."""
  model = values.get('model')
  added = fields.added(model.get('name') if isinstance(model, dict) else '')
  for name, value in added.items():
    section, _, field = name.rpartition('.')
    place = values.setdefault(section, {}) if section else values
    if isinstance(place, dict):
      place.setdefault(field, value)
  return ConfigDict({**values, 'mesh': mesh.ONE_DEVICE})


def _restored(made, folder):
  """(what is scored, the step that it is of)."""
  whole = all((folder / name).is_dir() for name in ('last', 'best'))
  checkpoints = Checkpoints(folder, read_only=True) if whole else None
  try:
    restored = checkpoints and checkpoints.restore_last(made.state_shape)
    if restored is None:
      raise UserError(
          f'{folder} has no checkpoint yet, or not both of last and best: let '
          'the run go on until its first validation.')
    state, progress = restored[0], Progress.of(restored[1], folder)
    found = chosen(made, state, progress, checkpoints)
    return found, (progress.best_step if progress.scores_best(made.config)
                   else int(state.step))
  finally:
    if checkpoints:
      checkpoints.close()
