"""Describes, before training, the files that runs will write."""

import os
import pathlib
from collections.abc import Sequence

from lra.schema import identity


def text(runs: Sequence, place, *, tested: bool, recorded: bool,
         replace: bool) -> str:
  """Returns a line with the run directories, records and pages to be written.

  Args:
    runs: the experiments to train.
    place: paths of the leaderboard, a `site.Place`.
    tested: whether the runs end with their test.
    recorded: whether their results are recorded.
    replace: whether a new record replaces an earlier one.
  """
  said = 'Writes to ' + (f'{len(runs)} run directories, such as ' if (
      len(runs) > 1) else '') + str(_shown(runs[0].folder))
  if not tested:
    return f'{said}; without a test there is no record.'
  if not recorded:
    return f'{said}; the result is not recorded.'
  records = _shown(place.runs)
  if not replace and all(_record(run, place).exists() for run in runs):
    return (f'{said}; {records} has a record already, which is compared with '
            'the result but not changed.')
  return (f'{said}; then records the result in {records}, which changes '
          f'{_shown(place.page)}, its pages in {_shown(place.details)} and the '
          f'figures in {_shown(place.figures)}. --norecord prevents this.')


def _record(run, place):
  """Returns the path of the record of a run whose settings were not searched.
  """
  config = run.config.to_dict()
  return place.runs / config['task'] / (
      f'{config["model"]["name"]}-{identity.run_name(config)}.json')


def _shown(path):
  """Returns a path, from the current folder if it lies in there."""
  path, here = pathlib.Path(os.path.abspath(path)), pathlib.Path.cwd()
  return path.relative_to(here) if path.is_relative_to(here) else path
