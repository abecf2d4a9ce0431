"""Finds committed records of a model with its protocol's own settings."""

import json
import pathlib

from tests.helpers.paths import ROOT

RUNS = ROOT / 'lra/results/runs'


def records(task: str, model: str, seed: int = 0) -> list[pathlib.Path]:
  """Returns the records of a seed that change no setting, in order."""
  found = sorted((RUNS / task).glob(f'{model}-*-s{seed}.json'))
  return [path for path in found if _plain(json.loads(path.read_text()))]


def _plain(record):
  return not record.get('changes') and not record.get('search') and (
      record['model'] == record['config']['model']['name'])
