"""The script for the day of a chip, rehearsed on a processor."""

import json

import pytest

from kernels.tools import benchmark
from kernels.tools.errors import Case
from lra.costs import layers, onchip

TINY = {
    'errors': [Case(9, 1, 8, 'float32', 'ragged')],
    'kernels': {**benchmark.SMALL, 'tokens': 128, 'heads': 1, 'lengths': (64,),
                'widths': (8,), 'calls': 1, 'copy': 2**12},
    'layers': {'batch': 1, 'length': 16, 'heads': ((2, 8),), 'calls': 1,
               'copy': 2**12},
}


@pytest.mark.full
def test_every_stage_ends_in_the_file(tmp_path):
  path = tmp_path / 'results' / 'here.json'
  onchip.run(path, sizes=TINY)
  record = json.loads(path.read_text())
  assert record['device'] and record['packages']['jax']
  assert not any('failed' in record[stage] for stage in onchip.STAGES)
  errors = record['errors']
  assert 0 < errors['within_bounds'] == errors['measured'] < len(errors['rows'])
  assert any('us' in row for row in record['kernels']['rows'])
  rows = record['layers']['rows']
  assert len(rows) == 2 * len(layers.MODELS) * len(layers.PASSES)
  assert all(row['us'] > 0 and row['error'] < 2e-2 for row in rows)


def test_a_stage_that_fails_costs_no_other(tmp_path, monkeypatch):
  path = tmp_path / 'here.json'
  path.write_text('{"layers": {"rows": [1]}}')

  def broken(*_):
    raise RuntimeError('no such kernel')

  monkeypatch.setattr(onchip, '_kernels', broken)
  record = onchip.run(path, ('kernels', 'errors'), TINY)
  assert record['kernels']['failed'] == 'RuntimeError: no such kernel'
  assert record['errors']['measured'] > 0
  assert record['layers'] == {'rows': [1]}  # of an earlier call
  assert json.loads(path.read_text()) == record


def test_what_the_sanitizer_says(tmp_path, monkeypatch):
  program = tmp_path / 'compute-sanitizer'
  program.write_text(
      '#!/bin/sh\n'
      'case $2 in racecheck) echo "= RACECHECK SUMMARY: 3 hazards" ;;\n'
      '*) echo "= ERROR SUMMARY: 0 errors" ;; esac\n')
  program.chmod(0o755)
  monkeypatch.setenv('PATH', str(tmp_path))
  monkeypatch.setattr(onchip.sys, 'prefix', str(tmp_path))
  found = onchip._races(None)
  assert [found[tool]['found'] for tool in onchip.SANITIZERS] == [3, 0, 0]
  program.unlink()
  assert onchip._races(None) == {
      'skipped': 'compute-sanitizer is not installed'}
