"""Restores parameters of a run without changing it."""

import pathlib

import jax
from absl import logging
from ml_collections import ConfigDict

from lra.core import files, foreign, tasks
from lra.core.errors import UserError
from lra.run import mesh, program, rundir, weights
from lra.run.checkpoint import Checkpoints
from lra.run.counters import RunCounters, scored_of
from lra.run.experiment import resolve
from lra.run.sources import place
from lra.schema import fields


def data(folder: pathlib.Path) -> tuple[str | None, str | None]:
  """Returns fingerprint and origin of a run's data; a missing one is None."""
  run_folder = place(folder)[0]
  kept = rundir.environment(run_folder)
  if kept.get('data_origin') is None:  # an older run
    made = files.read_json(run_folder / 'result.json')
    kept = {**(made if isinstance(made, dict) else {}), **{
        name: value for name, value in kept.items() if value is not None}}
  return kept.get('data_fingerprint'), kept.get('data_origin')


def scored(folder: pathlib.Path) -> tuple[program.Program, dict, int]:
  """Restores a run on one device, with the parameters that it scores.

  `folder` is a run directory or a folder that `export` wrote. For other
  parameters: checkpoints/best or checkpoints/last in a run directory, or a step
  in one of these. Returns (program, its `params` and `constants`, their step).
  """
  run_folder, kind, step = place(folder)
  tasks.learn(run_folder)
  path = run_folder / 'config.json'
  with foreign.reading(path, 'restore it'):
    config = _config(files.read_json(path))
  dtype = rundir.environment(run_folder).get('dtype')
  try:
    made = program.make(
        resolve(config, folder=run_folder), jax.devices()[:1], dtype=dtype)
  except UserError as e:
    raise UserError(
        f'{path} is not the config of a run here: {e} If a newer version of '
        'lra has written it, update lra.') from e
  exported = run_folder / weights.NAME
  if exported.exists():
    return made, *weights.load(exported, scored_of(made.state_shape))
  level = logging.get_verbosity()
  logging.set_verbosity(logging.ERROR)  # Orbax warns about read-only use
  checkpoints = Checkpoints(run_folder / 'checkpoints', read_only=True)
  try:
    return made, *_restored(made, checkpoints, kind, step)
  finally:
    checkpoints.close()
    logging.set_verbosity(level)


def _config(values):
  """Returns a run's config for one device; missing fields get old behaviour."""
  model = values.get('model')
  name = model.get('name') if isinstance(model, dict) else ''
  added = fields.added(name if isinstance(name, str) else '')
  for name, value in added.items():
    section, _, field = name.rpartition('.')
    place = values.setdefault(section, {}) if section else values
    if isinstance(place, dict):
      place.setdefault(field, value)
  return ConfigDict({**values, 'mesh': mesh.ONE_DEVICE})


def _restored(made, checkpoints, kind, step):
  like, folder = scored_of(made.state_shape), checkpoints.folder
  if kind == 'best' and step is not None:
    return checkpoints.restore_best(step, like), step
  restored = checkpoints.restore_last(made.state_shape, only=step)
  if restored is None:
    if (folder.parent / 'result.json').exists():
      raise UserError(
          f'{folder} has no checkpoint, although the run is finished: restore '
          f'it from a copy, or delete {folder.parent} to train anew.')
    raise UserError(f'{folder} has no checkpoint yet: let the run continue '
                    'until its first validation.')
  state, counters = restored[0], RunCounters.of(restored[1], folder)
  if kind == 'best' and counters.best_val is None:
    raise UserError(f'{folder / kind} is empty, since nothing was validated: '
                    f'give {folder / "last"}.')
  if kind == 'best' or not kind and counters.scores_best(made.config):
    return (checkpoints.restore_best(counters.best_step, like),
            counters.best_step)
  return scored_of(state), int(state.step)
