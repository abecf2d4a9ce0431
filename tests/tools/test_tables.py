"""Tests that tables are inserted into the README of the kernels."""

import io
import json
import math
import sys

import pytest

from tools import benchmark, readme, recorded

TABLE = '| a |\n|---|\n| \\1 |'


def test_a_table_replaces_the_one_before():
  text = 'x\n<!-- errors:begin -->\nold\n<!-- errors:end -->\ny\n'
  once = readme.put(text, 'errors', TABLE)
  assert once == f'x\n<!-- errors:begin -->\n{TABLE}\n<!-- errors:end -->\ny\n'
  assert readme.put(once, 'errors', TABLE) == once


def test_nothing_is_lost_to_an_empty_table_or_a_wrong_name():
  text = readme.README.read_text(encoding='utf-8')
  with pytest.raises(ValueError, match='no table'):
    readme.put(text, 'errors', '')
  with pytest.raises(ValueError, match="no section 'speed'"):
    readme.put(text, 'speed', TABLE)


@pytest.mark.parametrize(
    'section', ['errors', 'chip', 'times', 'layers', 'h200', 'bytes'])
def test_the_readme_has_every_table(section):
  text = readme.README.read_text(encoding='utf-8')
  _, inside = text.split(f'<!-- {section}:begin -->')
  assert '|---' in inside.split(f'<!-- {section}:end -->')[0]


@pytest.mark.parametrize('arguments, code', [
    (['--help'], 0), (['--all'], 2), ([], 2), (['errors', 'h200'], 2)])
def test_asking_for_help_writes_nothing(monkeypatch, arguments, code):
  monkeypatch.setattr(sys, 'argv', ['readme', *arguments])
  monkeypatch.setattr(sys, 'stdin', io.StringIO(TABLE))
  monkeypatch.setattr(readme, 'put', lambda *_: 1 / 0)
  with pytest.raises(SystemExit) as end:
    readme.main()
  assert end.value.code == code


def test_a_table_from_standard_input_is_written(monkeypatch, tmp_path):
  monkeypatch.setattr(readme, 'README', tmp_path / 'README.md')
  readme.README.write_text('<!-- bytes:begin -->\n<!-- bytes:end -->\n')
  monkeypatch.setattr(sys, 'argv', ['readme', 'bytes'])
  monkeypatch.setattr(sys, 'stdin', io.StringIO(TABLE))
  readme.main()
  assert TABLE in readme.README.read_text()


def test_the_errors_of_a_chip_are_those_of_its_record(capsys):
  path = readme.README.parent / 'results' / 'h200.json'
  recorded.main([str(path)])
  table = capsys.readouterr().out
  text = readme.README.read_text(encoding='utf-8')
  assert readme.put(text, 'chip', table) == text
  rows = json.loads(path.read_text())['errors']['rows']
  own = [row for row in rows if row['kernel'] == 'pallas_gpu'
         and row['op'] == 'linear' and 'within' in row]
  line = next(x for x in table.splitlines() if '| pallas_gpu |' in x)
  assert f'| {max(row["dq"] for row in own):.1e} |' in line
  assert line.endswith(f'| {len(own)} of {len(own)} |')


@pytest.mark.parametrize('stage, section', [
    ('kernels', 'times'), ('layers', 'layers')])
def test_the_times_of_a_chip_are_those_of_its_record(capsys, stage, section):
  path = readme.README.parent / 'results' / 'h200.json'
  recorded.main([str(path), f'--of={section}'])
  table = capsys.readouterr().out
  text = readme.README.read_text(encoding='utf-8')
  assert readme.put(text, section, table) == text
  rows = json.loads(path.read_text())[stage]['rows']
  floors = {row['percent_of_floor'] for row in rows if 'us' in row}
  assert 0 < min(floors) and max(floors) <= 100


def test_the_fastest_of_ours_is_told_from_the_others():
  def row(kernel, us, floor=50.0, **more):
    return {'op': 'linear', 'pass': 'fwd', 'L': 8, 'Dh': 4, 'kernel': kernel,
            'us': us, 'vs_xla': 27.0 / us, 'percent_of_floor': floor,
            'error': 2e-3, **more}

  skipped = {k: v for k, v in row('fla chunk', 1.0).items() if k != 'us'}
  rows = [row('xla', 30.0), row('pallas_triton', 9.0), row('pallas_gpu', 10.0),
          row('xla [B,H,L,Dh]', 27.0), skipped, row('fla fused_chunk', 18.0),
          row('cuDNN softmax', 8.0, error=None), row('xla', 40.0, L=16),
          row('pallas_gpu', 10.0, Dh=8, vs_xla=None,
              error=benchmark.finite(math.nan))]
  run = {'rows': rows, 'packages': {'jax': '1', 'torch': '2'}, 'heads': 2,
         'tokens': 64, 'dtype': 'bfloat16', 'copy_bytes_per_s': 4e12}
  record = {'device': 'a chip', 'kernels': run}
  _, _, head, _, both, alone, ours = recorded.times(record)
  assert 'cuDNN softmax, us' in head and 'fla chunk' not in head
  assert '| 30 | 9 | 10 | 27 | 18 | 8 |' in both
  # Softmax is faster, but it is a different function: no winner.
  assert both.endswith('| pallas_triton | 50 | 3.00 | 2.00 | 2.0e-03 |')
  assert alone == (
      '| linear | fwd | 16 | 4 | 40 |  |  |  |  |  |  |  |  |  |  |')
  assert ours.endswith('| pallas_gpu | 50 |  |  | not finite |')


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
  with pytest.raises(SystemExit, match=r'here\.json is no record of errors'):
    recorded.main([str(path)])
