"""Tests the table of published results."""

import json

import pytest

from lra import models
from lra.board import inputs
from lra.core import paths
from lra.core.errors import UserError
from tests.helpers.page import Place, make

pytestmark = pytest.mark.usefixtures('no_protocols')
HEADER = ','.join(inputs.COLUMNS)
GOOD = 'X,1.0,,,,,FAIL,,lra,"here, there",2011.04006,primary,'


def test_rows_are_read_as_printed(tmp_path):
  path = tmp_path / 'p.csv'
  path.write_text(f'{HEADER}\n{GOOD}\n')
  assert inputs.published(path) == [inputs.Published(
      'X', {'listops': '1.0', 'text': '', 'retrieval': '', 'image': '',
            'pathfinder': '', 'pathx': 'FAIL'},
      '', 'lra', 'here, there', '2011.04006', 'primary', '')]


@pytest.mark.parametrize('line, reason', [
    ('X,1.0,,,,,,,lra,here,2011.04006', '11 fields instead of 13'),
    ('', '0 fields instead of 13'),
    ('X,101,,,,,,,lra,here,2011.04006,primary,', "listops '101'"),
    ('X,0.3e1,,,,,,,lra,here,2011.04006,primary,', "listops '0.3e1'"),
    ('X,fail,,,,,,,lra,here,2011.04006,primary,', "listops 'fail'"),
    (',1.0,,,,,,,lra,here,2011.04006,primary,', 'model is empty'),
    ('X,1.0,,,,,,,lra,here,11.4006,primary,', "arxiv '11.4006'"),
    ('X,1.0,,,,,,,lra,here,2011.04006,hearsay,', "evidence 'hearsay'"),
    ('X,"1.0,,,,,,,lra,here,2011.04006,primary,', 'unexpected end of data'),
])
def test_a_bad_published_row_is_named_with_its_line(tmp_path, line, reason):
  path = tmp_path / 'published.csv'
  path.write_text(f'{HEADER}\n{GOOD}\n{line}\n')
  with pytest.raises(UserError) as error:
    inputs.published(path)
  assert f'{path}, line 3: ' in str(error.value)
  assert reason in str(error.value)


def test_a_missing_or_foreign_published_file_is_named(tmp_path):
  path = tmp_path / 'published.csv'
  path.write_text('a,b\n')
  with pytest.raises(UserError, match=r'published.csv, line 1: the header'):
    inputs.published(path)
  path.unlink()
  with pytest.raises(UserError, match='Cannot read .*published.csv'):
    inputs.published(path)


def test_a_row_is_compared_within_its_protocol_only(tmp_path):
  """A row is compared with the published row of its own protocol only.

  The numbers were computed by hand, in percent. Distances from a score to the
  ends of its two intervals are added in quadrature. Our seeds of 60, 61 and 62
  have 61 +- 2.48 (Student's t), and 122 of 200 examples 54.09 to 67.49
  (Wilson): together 53.66 to 67.95. The published scores count as 129 of 200,
  57.65 to 70.80 (Wilson), and 149 of 200, 68.04 to 80.04. So the difference
  from 64.27 begins at -3.27 - sqrt(7.34^2 + 6.53^2) = -13.1.
  """
  place = Place(tmp_path, [
      make(seed=i, right=right, protocol='lra')
      for i, right in enumerate((120, 122, 124))] + [make()])
  for run in place.runs.rglob('*.json'):
    record = json.loads(run.read_text())
    record['config'] |= {'protocol': record['protocol'], 'task': 'text'}
    run.write_text(json.dumps({**record, 'task': 'text'}))
  page = place.render()
  assert page.count('Comparison with the published') == 1
  assert ('| transformer | 61.0 | 58.5 to 63.5 | 3 | 64.27 | -3.3 '
          '| -13.1 to +6.3 | not different | Transformer, README, primary |'
          ) in page
  csv = place.csv.read_text()
  place.csv.write_text(csv.replace('64.27', '74.27'))
  assert '| 74.27 | -13.3 | -22.6 to -3.9 | lower |' in place.render()
  place.csv.write_text(csv.replace('64.27', '44.27'))
  assert '| higher |' in place.render()
  place.csv.write_text(csv.replace('64.27', 'FAIL'))
  assert 'Comparison with the published' not in place.render()


def test_means_are_of_five_tasks_and_of_six():
  """Printed averages are means over five tasks, or over six as in S4's paper.

  FAIL counts as 50 in the mean over six. The LRA paper prints 51.29 for
  Sinkhorn, but its scores give 51.48.
  """
  rows = inputs.published(paths.PACKAGED / 'published.csv')
  for row in rows:
    if row.average:
      made = [row.mean(tasks) for tasks in inputs.AVERAGES]
      off = min(abs(100 * mean - float(row.average)) for mean in made)
      assert off < (0.2 if row.model.startswith('Sinkhorn') else 0.06), row
  assert len({(row.model, row.protocol) for row in rows}) == len(rows) >= 36
  assert {row.here for row in rows} - {''} <= {*models.names()}
  random = next(row for row in rows if row.model == 'Random')
  assert [random.mean(tasks) for tasks in inputs.AVERAGES] == [None, None]
