"""Files are written completely or not at all; errors name damaged files."""

import os
import pathlib  # noqa: F401, for arguments
import signal
import subprocess
import sys

import pytest

from lra.core import files
from lra.core.errors import UserError
from tests.helpers.paths import ROOT


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


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
  (tmp_path / 'there').mkdir()
  for name in ('old', 'new'):
    (tmp_path / name).symlink_to(f'there/{name}')
  (tmp_path / 'there/old').write_text('before')
  files.write_all({tmp_path / name: b'now' for name in ('old', 'new')})
  for name in ('old', 'new'):
    assert (tmp_path / name).is_symlink()
    assert (tmp_path / 'there' / name).read_text() == 'now'


@pytest.mark.parametrize('make', [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_replaced(tmp_path, make):
  make(tmp_path / 'x')
  with pytest.raises(UserError, match='x, .* regular file'):
    files.write_all({tmp_path / 'a': b'1', tmp_path / 'x': b'2'})
  assert [p.name for p in tmp_path.iterdir()] == ['x']


_KILLED = """
import os, pathlib, sys
from lra.core import files
os.replace = os.rename = lambda *_: os.kill(os.getpid(), 9)
getattr(files, sys.argv[1])(*eval(sys.argv[2]))
"""


@pytest.mark.parametrize('function, arguments', [
    ('write_folder', "(pathlib.Path('out'), {'a': b'1'})"),
    ('write_all', "({pathlib.Path('out'): b'1', pathlib.Path('b'): b'2'},)")])
def test_what_a_kill_left_is_removed(
    tmp_path, monkeypatch, function, arguments):
  monkeypatch.chdir(tmp_path)
  done = subprocess.run(
      [sys.executable, '-c', _KILLED, function, arguments],
      env={**os.environ, 'PYTHONPATH': str(ROOT)})
  assert done.returncode == -signal.SIGKILL and list(tmp_path.glob('.tmp-*'))
  mine = files.beside(tmp_path / 'x')  # a process that writes now
  mine.touch()
  for name in ('.tmp-note', '.tmp-1-2-3', '.tmp--x-'):  # of other programs
    (tmp_path / name).touch()
  getattr(files, function)(*eval(arguments))
  assert {p.name for p in tmp_path.glob('.tmp-*')} == {
      mine.name, '.tmp-note', '.tmp-1-2-3', '.tmp--x-'}
