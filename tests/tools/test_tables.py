"""Tests of the tables: of a chip's record, of step times and of memory."""

import json
import math

import pytest

from lra.board import catalogue, inputs
from lra.core import files, paths
from lra.core.errors import UserError
from lra.nn import partials
from tests.helpers.paths import ROOT
from tools import benchmark, recorded, tables

README = ROOT / 'kernels/README.md'
RECORD = ROOT / 'kernels/results/h200.json'
ENTRIES = {e.name: e for e in catalogue.read()}
SUBQUADRATIC = [n for n, e in ENTRIES.items() if tables.limit(e) is not None]


def test_the_errors_of_a_chip_are_those_of_its_record(capsys):
  recorded.main([str(RECORD)])
  table = capsys.readouterr().out
  assert table.strip() in README.read_text(encoding='utf-8')
  rows = json.loads(RECORD.read_text())['errors']['rows']
  own = [row for row in rows if row['kernel'] == 'pallas_gpu'
         and row['op'] == 'linear' and 'within' in row]
  line = next(x for x in table.splitlines() if '| pallas_gpu |' in x)
  assert f'| {max(row["dq"] for row in own):.1e} |' in line
  assert line.endswith(f'| {len(own)} of {len(own)} |')


def test_times_of_a_record_are_listed():
  def row(kernel, us, **more):
    return {'op': 'linear', 'pass': 'fwd', 'L': 8, 'Dh': 4, 'kernel': kernel,
            'us': us, 'vs_xla': 27.0 / us, 'vs_best_other': None,
            'percent_of_floor': 50.0, 'error': 2e-3, **more}

  rows = [row('xla', 27.0), row('cudnn softmax', 9.0, error=None),
          {'kernel': 'pallas_gpu', 'skipped': 'not here'}]
  lines = recorded.times({
      'device': 'a chip', 'jax': '1', 'rows': rows, 'heads': 2, 'tokens': 64,
      'dtype': 'bfloat16', 'copy_bytes_per_s': 4e12})
  assert '| linear | fwd | 8 | 4 | xla | 27 | 1.00 |  | 50 | 2.0e-03 |' in lines
  assert '| linear | fwd | 8 | 4 | cudnn softmax | 9 | 3.00 |  | 50 |  |' in (
      lines)
  assert lines[-1] == 'Not run: pallas_gpu: not here'


def test_a_case_out_of_bounds_or_failed_is_seen():
  row = {'op': 'linear', 'kernel': 'xla', 'dtype': 'float32', 'width': 8,
         'form': 'plain'}
  rows = [{**row, 'out': 1e-3, 'within': False}, {**row, 'failed': 'no room'},
          {**row, 'op': 'softmax', 'out': benchmark.finite(math.nan),
           'within': False},
          {**row, 'op': 'lightning', 'skipped': 'not here'}]
  *_, linear, softmax = recorded.table(
      {'device': 'a chip', 'errors': {'rows': rows, 'packages': {'jax': '1'}}})
  assert '| 1.0e-03 |' in linear and linear.endswith('| 0 of 2 |')
  assert '| not finite |' in softmax and softmax.endswith('| 0 of 1 |')


@pytest.mark.parametrize('text', ['{', '[]', '{"device": "a chip"}'])
def test_what_is_no_record_of_a_chip_is_one_sentence(tmp_path, text):
  path = tmp_path / 'here.json'
  path.write_text(text)
  with pytest.raises(UserError, match=r'here\.json is no record of errors'):
    recorded.main([str(path)])


def test_speed_has_a_row_per_model_and_a_ratio_per_length(
    monkeypatch, tmp_path):
  """Cells hold the medians of simulated step times.

  `local` takes 1 s and `transformer` 2 s at L = 16, and half of it at L = 32.
  """

  def training_step(name, batch, length, width):
    assert (batch, length) in ((2, 16), (1, 32)) and width == 8
    seconds = 16 / length * {'local': 1, 'transformer': 2}[name]
    warm_up_and_rounds = iter([20, seconds, 3 * seconds, seconds])
    return lambda: next(warm_up_and_rounds), length * 2**20

  entries = [e for e in catalogue.read() if e.name in ('local', 'transformer')]
  monkeypatch.setattr(catalogue, 'read', lambda: entries)
  monkeypatch.setattr(tables, '_training_step', training_step)
  measured = tables.measure_speed(width=8, rounds=3, shapes=((2, 16), (1, 32)))
  header, _, *rows = tables.speed_lines(measured)[-1].splitlines()
  cells = [[c.strip() for c in row.strip('|').split('|')] for row in rows]
  assert [c.strip() for c in header.strip('|').split('|')] == [
      'model', 'cost', '2 x 16', 'ratio', 'MiB', '1 x 32', 'ratio', 'MiB']
  assert [(c[0], *map(float, c[2:])) for c in cells] == [
      ('local', 1, 0.5, 16, 0.5, 0.5, 32), ('transformer', 2, 1, 16, 1, 1, 32)]
  files.write_json(tmp_path / 'speed.json', measured)
  found = inputs.speeds(tmp_path / 'speed.json')
  assert found.faster == {'local': 2, 'transformer': 1}
  assert set(found.memory.values()) == {32 * 2**20}
  assert found.what.startswith('1 x 32 tokens on cpu')


def test_less_than_the_floor_is_moved_on_tpus_alone():
  """Only compilers for TPUs may keep an array on chip between two parts."""
  lines = (paths.PACKAGED / 'layers.md').read_text('utf-8').split(
      '| :-- |\n')[1].splitlines()
  below = {line.split(' | ')[0].strip('| ') for line in lines
           if float(line.split(' | ')[6]) < 1}
  assert below == {'v5e', 'v6e'}


@pytest.mark.full
@pytest.mark.parametrize('name', SUBQUADRATIC)
def test_memory_grows_as_the_model_says(name, monkeypatch):
  # Computes the heads one by one at both lengths. If only the longer one did
  # so, it would save memory and hide the growth.
  monkeypatch.setattr(partials, 'MANY_LOGITS', 0)
  half, whole = (tables.compile_gradient(tables.mixer(name), n)
                 for n in tables.LENGTHS)
  limit = tables.limit(ENTRIES[name])
  assert tables.temporary_bytes(whole) <= limit * tables.temporary_bytes(half)
  assert '4096,4096' not in half.as_text()


def test_the_measure_sees_quadratic_memory():
  half, whole = (
      tables.compile_gradient(tables.mixer('transformer', kernel='dense'), n)
      for n in (512, 1024))
  assert tables.temporary_bytes(whole) > 3 * tables.temporary_bytes(half)
  assert '512,512' in half.as_text()
