"""The table of published results."""

import json

import pytest
from test_leaderboard import Place, make

from lra import models
from lra.errors import UserError
from lra.report import leaderboard, published

HEADER = ','.join(published.COLUMNS)
GOOD = 'X,1.0,,,,,FAIL,,lra,"here, there",2011.04006,primary,'


def test_rows_are_read_as_printed(tmp_path):
  path = tmp_path / 'p.csv'
  path.write_text(f'{HEADER}\n{GOOD}\n')
  assert published.read(path) == [published.Published(
      'X', {'listops': '1.0', 'text': '', 'retrieval': '', 'image': '',
            'pathfinder': '', 'pathx': 'FAIL', 'average': ''},
      'lra', 'here, there', '2011.04006', 'primary', '')]


def test_the_committed_file_is_sound():
  rows = published.read(leaderboard.RESULTS / 'published.csv')
  simple = next(r for r in rows if r.model == 'SimpleTRON Simple')
  assert simple.scores['listops'] == '37.45'
  assert len({(r.model, r.protocol) for r in rows}) == len(rows) >= 36


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
    published.read(path)
  assert f'{path}, line 3: ' in str(error.value)
  assert reason in str(error.value)


def test_a_missing_or_foreign_published_file_is_named(tmp_path):
  path = tmp_path / 'published.csv'
  path.write_text('a,b\n')
  with pytest.raises(UserError, match=r'published.csv, line 1: the header'):
    published.read(path)
  path.unlink()
  with pytest.raises(UserError, match='Cannot read .*published.csv'):
    published.read(path)


def test_a_row_is_compared_within_its_protocol_only(tmp_path):
  """Three seeds of 60, 61, 62%: t gives 61 +- 2.48; the paper's are 64.27."""
  place = Place(tmp_path, [
      make(seed=i, right=right, protocol='lra')
      for i, right in enumerate((120, 122, 124))] + [make()])
  for run in place.runs.rglob('*.json'):
    record = json.loads(run.read_text())
    record['config'] |= {'protocol': record['protocol'], 'task': 'text'}
    run.write_text(json.dumps({**record, 'task': 'text'}))
  page = place.render()
  assert page.count('Against the published') == 1
  assert ('| transformer | 61.0 | 58.5 to 63.5 | 3 | 64.27 | -3.3 '
          '| outside the interval | Transformer, README, primary |') in page
  csv = place.csv.read_text()
  place.csv.write_text(csv.replace('64.27', '63.27'))
  assert '| 63.27 | -2.3 | inside the interval |' in place.render()
  place.csv.write_text(csv.replace('64.27', 'FAIL'))
  assert 'Against the published' not in place.render()


def test_the_committed_file_names_models_there_are():
  rows = published.read(leaderboard.RESULTS / 'published.csv')
  named = {row.here for row in rows} - {''}
  assert len(named) >= 15 and named <= set(models.names())
