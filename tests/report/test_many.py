"""Ten thousand records are a page, and not much more memory than few."""

import copy
import json
import os
import subprocess
import sys

import pytest

from lra.config import identity
from tests.helpers.paths import ROOT

RECORDS = ROOT / 'lra/results/runs'
_RENDER = """
import pathlib, resource, sys
from lra.report import publish
folder = pathlib.Path(sys.argv[1])
publish.regenerate(publish.Place(folder, folder / 'page.md'))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _fill(folder, count):
  """So many records: first mini ones with other seeds and learning rates."""
  known = [json.loads(path.read_text())
           for task in ('listops_mini', 'text_mini')
           for path in sorted((RECORDS / task).glob('*-s0.json'))]
  for number in range(count):
    repeat, index = divmod(number, len(known))
    record = copy.deepcopy(known[index])
    config = record['config']
    record['seed'] = config['seed'] = 10 + repeat % 50
    record['test']['loss'] += repeat / 100  # with the same it were a copy
    config['train']['learning_rate'] = 0.01 + 0.01 * (repeat // 50)
    path = folder / 'runs' / record['task'] / (
        f'{record["model"]}-{identity.run_name(config)}.json')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def _megabytes(folder):
  """The most memory that making the page takes."""
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
  _fill(many, 10_000)
  before, after = _megabytes(few), _megabytes(many)
  page = (many / 'page.md').read_text()
  assert page.count('| 50 |') > 100  # rows of fifty seeds
  assert after < before + 10_000 * 0.03, (before, after)  # 30 KB a record
