"""Tests the memory that a page of ten thousand records takes."""

import collections
import copy
import json
import os
import subprocess
import sys

import pytest

from lra.schema import identity
from tests.helpers.paths import ROOT

RECORDS = ROOT / 'lra/results/runs'
_RENDER = """
import pathlib, resource, sys
from lra.board import publish
folder = pathlib.Path(sys.argv[1])
publish.regenerate(publish.Place(folder, folder / 'page.md'))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _fill(folder, count):
  """Writes `count` records: mini runs with new seeds and learning rates.

  Returns the number of rows with fifty seeds.
  """
  known = [json.loads(path.read_text())
           for task in ('listops_mini', 'text_mini')
           for path in sorted((RECORDS / task).glob('*-s0.json'))]
  for number in range(count):
    repeat, index = divmod(number, len(known))
    record = copy.deepcopy(known[index])
    config = record['config']
    record['seed'] = config['seed'] = 10 + repeat % 50
    record['test']['loss'] += repeat / 100  # else it counts as a copy
    config['train']['learning_rate'] = 0.01 + 0.01 * (repeat // 50)
    path = folder / 'runs' / record['task'] / (
        f'{record["model"]}-{identity.run_name(config)}.json')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
  seeds = collections.Counter(
      (path.parent.name, path.stem.rpartition('-s')[0])
      for path in (folder / 'runs').rglob('*.json'))
  return sum(number == 50 for number in seeds.values())


def _of_fifty_seeds(folder):
  """Counts the rows with fifty seeds in the tables of the task pages."""
  found, column = 0, None
  for page in sorted((folder / 'page').glob('*.md')):
    for line in page.read_text().splitlines():
      cells = [cell.strip() for cell in line.split(' | ')]
      if 'seeds' in cells and 'above baseline' in cells:
        column = cells.index('seeds')
      elif not line.startswith('|'):
        column = None
      elif column is not None:
        found += cells[column] == '50'
  return found


def _megabytes(folder):
  """Makes the page in another process; returns its peak memory in MiB."""
  done = subprocess.run(
      [sys.executable, '-c', _RENDER, str(folder)], text=True, check=False,
      capture_output=True, env={**os.environ, 'PYTHONPATH': str(ROOT)})
  assert done.returncode == 0, done.stderr
  assert 'left out' not in done.stderr
  return int(done.stdout.split()[-1]) / 1024


@pytest.mark.full
def test_ten_thousand_records(tmp_path):
  few, many = tmp_path / 'few', tmp_path / 'many'
  _fill(few, 100)
  rows = _fill(many, 10_000)
  before, after = _megabytes(few), _megabytes(many)
  assert rows > 100 and _of_fifty_seeds(many) == rows
  assert after < before + 10_000 * 0.03, (before, after)  # 30 KB a record
