"""Tests that the benchmark runs on a CPU and writes what it prints."""

import json

import pytest

from tests.helpers.errors import FUNCTIONS
from tools import benchmark

pytestmark = pytest.mark.full

TINY = {
  'tokens': 128,
  'heads': 1,
  'lengths': (64,),
  'widths': (8,),
  'calls': 1,
  'copy': 2**12,
}


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  path = tmp_path_factory.mktemp('benchmark') / 'results' / 'here.json'
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(benchmark, 'SMALL', TINY)
    benchmark.main([f'--json={path}'])
  return path


def test_rows(written, capsys):
  record = json.loads(written.read_text())
  timed = [row for row in record['rows'] if 'us' in row]
  assert {(r['op'], r['pass'], r['kernel']) for r in timed} >= {
      (op, direction, 'xla') for op in FUNCTIONS
      for direction in benchmark.PASSES}
  for row in timed:
    assert row['us'] > 0 and row['percent_of_floor'] > 0
    assert row['error'] < 6e-3
    assert 0 < row['vs_xla'] <= 1  # only `xla` runs on a CPU
  skipped = {r['kernel']: r['skipped'] for r in record['rows']
             if 'skipped' in r}
  assert 'needs a tpu device' in skipped['pallas_tpu']
  assert 'needs a gpu device' in skipped['pallas_gpu']
