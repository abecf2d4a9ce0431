"""Tests that the benchmark runs on a CPU and writes what it prints."""

import json
import subprocess
import sys

import pytest

from tests.helpers import tiny
from tools import benchmark, recorded
from tools.errors import FUNCTIONS

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


def test_rows(written):
  record = json.loads(written.read_text())
  timed = [row for row in record['rows'] if 'us' in row]
  seen = {(r['op'], r['pass'], r['kernel']) for r in timed}
  for op in FUNCTIONS:
    for direction in benchmark.PASSES:
      assert {(op, direction, 'xla'), (op, direction, 'xla [B,H,L,Dh]')} <= seen
  for row in timed:
    assert row['us'] > 0 and row['percent_of_floor'] > 0
    assert row['error'] < 6e-3
    assert 0 < row['vs_xla'] <= 1  # only `xla` runs on a CPU
  skipped = {r['kernel']: r['skipped'] for r in record['rows']
             if 'skipped' in r}  # fmt: skip
  assert 'needs a tpu device' in skipped['pallas_tpu']
  assert 'needs a gpu device' in skipped['pallas_gpu']
  others = {'flash_bla', 'fla chunk', 'fla fused_chunk', 'jla simple_gla'}
  assert others <= set(skipped)


def test_the_table_comes_from_the_file(written, capsys):
  benchmark.main([f'--table={written}'])
  printed = capsys.readouterr().out
  record = json.loads(written.read_text())
  assert printed == '\n'.join(recorded.every_time(record)) + '\n'
  assert printed.count('| linear | fwd | 64 | 8 | xla') == 2


@tiny.needs_libtpu
def test_nothing_is_said_of_devices_that_are_not_here():
  code = 'from kernels.tools import benchmark as b\n'
  code += f'b.SMALL = {TINY}\nb.main([])'
  done = subprocess.run(
    [sys.executable, '-c', code],
    text=True,
    capture_output=True,
    check=True,
    env=tiny.without_platforms(),
  )
  said = done.stderr.splitlines()
  assert said == [f'{op}, Dh 8, L 64: measured' for op in FUNCTIONS]
  assert '| linear | fwd |' in done.stdout
