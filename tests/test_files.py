"""Files are written whole or not at all, and damaged ones are named."""

import pytest

from lra import files
from lra.errors import UserError


def test_json_is_written_whole_or_not_at_all(tmp_path):
  path = tmp_path / 'x.json'
  files.write_json(path, {'a': 1})
  with pytest.raises(ValueError):
    files.write_json(path, {'a': float('nan')})
  assert files.read_json(path) == {'a': 1}
  assert [p.name for p in tmp_path.iterdir()] == ['x.json']


def test_none_is_read_where_there_is_no_file(tmp_path):
  (tmp_path / 'file').touch()
  assert files.read_json(tmp_path / 'x.json') is None
  assert files.read_json(tmp_path / 'file' / 'x.json') is None


@pytest.mark.parametrize('data', [
    b'', b'{"torn', b'\xff', b'{"a": NaN}', b'[-Infinity]'])
def test_a_damaged_file_is_named(tmp_path, data):
  path = tmp_path / 'x.json'
  path.write_bytes(data)
  with pytest.raises(UserError, match='x.json is damaged'):
    files.read_json(path)


def test_of_several_files_all_or_none_are_written(tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(UserError, match='Cannot write .*file.b '):
    files.write_all({tmp_path / 'a': b'1', tmp_path / 'file' / 'b': b'2'})
  assert [p.name for p in tmp_path.iterdir()] == ['file']
