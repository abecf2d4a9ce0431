"""The table of published results."""

import pytest

from lra.errors import UserError
from lra.report import leaderboard, published

HEADER = ','.join(published.COLUMNS)
GOOD = 'X,1.0,,,,,FAIL,,lra,"here, there",2011.04006,primary'


def test_rows_are_read_as_printed(tmp_path):
  path = tmp_path / 'p.csv'
  path.write_text(f'{HEADER}\n{GOOD}\n')
  assert published.read(path) == [published.Published(
      'X', {'listops': '1.0', 'text': '', 'retrieval': '', 'image': '',
            'pathfinder': '', 'pathx': 'FAIL', 'average': ''},
      'lra', 'here, there', '2011.04006', 'primary')]


def test_the_committed_file_is_sound():
  rows = published.read(leaderboard.RESULTS / 'published.csv')
  simple = next(r for r in rows if r.model == 'SimpleTRON Simple')
  assert simple.scores['listops'] == '37.45'
  assert len({(r.model, r.protocol) for r in rows}) == len(rows) >= 36


@pytest.mark.parametrize('line, reason', [
    ('X,1.0,,,,,,,lra,here,2011.04006', '11 fields instead of 12'),
    ('', '0 fields instead of 12'),
    ('X,101,,,,,,,lra,here,2011.04006,primary', "listops '101'"),
    ('X,0.3e1,,,,,,,lra,here,2011.04006,primary', "listops '0.3e1'"),
    ('X,fail,,,,,,,lra,here,2011.04006,primary', "listops 'fail'"),
    (',1.0,,,,,,,lra,here,2011.04006,primary', 'model is empty'),
    ('X,1.0,,,,,,,lra,here,11.4006,primary', "arxiv '11.4006'"),
    ('X,1.0,,,,,,,lra,here,2011.04006,hearsay', "evidence 'hearsay'"),
    ('X,"1.0,,,,,,,lra,here,2011.04006,primary', 'unexpected end of data'),
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


