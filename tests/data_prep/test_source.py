"""Every form of a source is read alike, or refused in one sentence."""

import functools
import gzip
import hashlib
import pathlib
import tarfile
import urllib.error

import pytest
import tensorflow_datasets as tfds

from lra import data_prep
from lra.core import tasks
from lra.core.errors import UserError
from lra.data_prep import source, zhang
from lra.data_prep.source import Source
from tests.helpers import damage
from tests.helpers.data_files import served, write_archive, write_folder

FILES = {'set/a.txt': b'one', 'set/b/c.txt': bytes(range(256)) * 20,
         'set/empty.txt': b''}
# Files that macOS leaves beside others.
DOUBLES = {f'{name.rpartition("/")[0]}/._{name.rpartition("/")[2]}':
           b'\0\5\x16\7Mac OS X' for name in FILES}
def read(path, inner='', most=1 << 23):
  return dict(Source(path).files(
      lambda name: most if not name.endswith('.html') else 0, inner))


def linked(path, files):
  write_folder(path.parent / 'there', files)
  (path / 'set').mkdir(parents=True)
  for entry in (path.parent / 'there' / 'set').iterdir():
    (path / 'set' / entry.name).symlink_to(entry)
  return path


@pytest.mark.parametrize('write', [
    write_folder, linked, *(functools.partial(write_archive, packed=packed)
                            for packed in ('', 'gz', 'bz2', 'xz'))])
def test_every_form_gives_the_same_files(tmp_path, write):
  path = write(tmp_path / 'top', FILES | DOUBLES)
  if path.is_dir():
    path = path / 'set'
  assert read(path) == FILES


def test_of_a_folder_with_the_inner_one_only_that_is_read(tmp_path):
  write_folder(tmp_path, {'top/set/a': b'1', 'top/other/a': b'2'})
  assert read(tmp_path / 'top', 'set') == {'top/set/a': b'1'}
  assert read(tmp_path / 'top' / 'other', 'set') == {'other/a': b'2'}


@pytest.mark.parametrize('packed', ['gz', 'bz2', 'xz'])
def test_flipped_bits_of_an_archive(tmp_path, packed):
  """A flipped bit gives the same files or an error that names the archive."""
  path = write_archive(tmp_path / 'a', FILES, packed)
  data = path.read_bytes()
  for place in range(20, len(data), max(1, len(data) // 80)):
    damage.flip_a_bit(path, place)
    try:
      assert read(path) == FILES
    except UserError as e:
      assert str(path) in str(e) and '\n' not in str(e)
    path.write_bytes(data)


def test_the_checksum_behind_the_last_member_is_compared(tmp_path):
  path = write_archive(tmp_path / 'a.tar.gz', FILES)
  damage.flip_a_bit(path, -8)
  with pytest.raises(UserError, match='a.tar.gz is damaged .*CRC'):
    read(path)


@pytest.mark.parametrize('keep', [0.0, 0.3, 0.9])
def test_what_is_cut_short_or_no_archive_is_refused(tmp_path, keep):
  path = write_archive(tmp_path / 'a.tar.gz', FILES)
  path.write_bytes(path.read_bytes()[:int(keep * path.stat().st_size)])
  with pytest.raises(UserError, match='damaged or not an archive .*download'):
    read(path)
  path.write_text('<html>not found</html>' * 1000)
  with pytest.raises(UserError, match='damaged or not an archive'):
    read(path)


def test_what_is_far_too_large_is_not_read(tmp_path):
  path, member = tmp_path / 'a.tar', tarfile.TarInfo('set/a')
  member.size = 1 << 40
  path.write_bytes(member.tobuf())
  with pytest.raises(UserError, match='set/a of 1,099,511,627,776 bytes'):
    read(path)
  write_folder(tmp_path / 'top', FILES)
  with pytest.raises(UserError, match='top/set/b/c.txt .* more than 9 bytes'):
    read(tmp_path / 'top', most=9)


def test_tables_are_found_plain_or_packed(tmp_path):
  (tmp_path / 'a').write_bytes(b'1\t2\r\n')
  (tmp_path / 'b.gz').write_bytes(gzip.compress(b'3\n4\t5', mtime=0))
  both = Source(tmp_path).find(['a', 'b'])
  assert [list(source.read_rows(path)) for path in both] == [
      [(1, ['1', '2'])], [(1, ['3']), (2, ['4', '5'])]]
  with pytest.raises(UserError, match='has no c: --source must'):
    Source(tmp_path).find(['a', 'c'])


@pytest.mark.parametrize('data, words', [
    (gzip.compress(b'a\tb\nc\td\n', mtime=0)[:-8], 'line 3: damaged archive'),
    (b'a\tb\nc\td\n\xff', "line 3: 'utf-8' codec")])
def test_a_line_that_cannot_be_read_is_named(tmp_path, data, words):
  (tmp_path / 'rows.tsv').write_bytes(data)
  rows = source.read_rows(tmp_path / 'rows.tsv')
  assert [next(rows), next(rows)] == [(1, ['a', 'b']), (2, ['c', 'd'])]
  with pytest.raises(UserError, match=f'rows.tsv, {words}'):
    next(rows)


SETS = [name for name, task in tasks.TASKS.items() if not task.probe]
MADE = ('listops', 'pathfinder')  # without a source


@pytest.mark.parametrize('task', [
    name for name in SETS
    if not tasks.get(name).mini or tasks.get(name).dataset not in MADE])
def test_a_source_that_does_not_exist_leaves_no_trace(tmp_path, task):
  with pytest.raises(UserError, match=f'/nowhere does not exist: --source of '
                     f'{task} must be [^\n]*$'):
    data_prep.prepare(task, tmp_path / 'data', tmp_path / 'nowhere')
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('task', [
    name for name in SETS if tasks.get(name).dataset not in MADE])
def test_without_a_network_the_error_names_the_source(
    tmp_path, monkeypatch, task):
  """Nothing is tried for long, and no folder is left."""
  def absent(*_, **__):
    raise urllib.error.URLError('no network')
  monkeypatch.setattr('urllib.request.urlopen', absent)
  monkeypatch.setattr(
      tfds.download.DownloadManager, 'download',
      lambda *_: pytest.fail('TFDS was called; it would try for minutes'))
  with pytest.raises(UserError, match=f'{task} --source=(.../[a-z]|DIR)') as e:
    data_prep.prepare(task, tmp_path / 'data')
  said = str(e.value)
  assert said.startswith(f'{tmp_path}/data/') and '\n' not in said
  assert all(url in said for url in data_prep.make_builder(
      task, tmp_path).url_infos)
  assert not list(tmp_path.iterdir())


TABLES = {'train.csv': b'of train', 'test.csv': b'of test'}


@pytest.fixture
def web(tmp_path, monkeypatch):
  """Lets AG News be downloaded from a server; returns the folder of its files.
  """
  monkeypatch.setattr(zhang, 'read_table', lambda table, *_: table)
  with served(write_folder(tmp_path / 'web', TABLES)) as address:
    monkeypatch.setattr(zhang.Zhang, 'origin', source.Origin('News', '', {
        f'{address}/{name}': (len(data), hashlib.sha256(data).hexdigest())
        for name, data in TABLES.items()}, 'ag_news_csv'))
    yield tmp_path / 'web'


def test_each_file_is_downloaded(tmp_path, web, monkeypatch):
  class Done(Exception):
    pass

  def content(rows, *_):
    assert rows == {'train': b'of train', 'test': b'of test'}
    raise Done
  monkeypatch.setattr(zhang, '_content', content)
  with pytest.raises(Done):
    data_prep.prepare('ag_news', tmp_path / 'data')


@pytest.mark.parametrize('change', [
    pathlib.Path.unlink, lambda path: path.write_bytes(b'of tesT'),
    lambda path: path.write_bytes(b'of test, and more')])
def test_a_download_of_something_else_is_refused(tmp_path, web, change):
  change(web / 'test.csv')
  with pytest.raises(UserError, match='--task=ag_news --source=.../ag_news_csv'
                     ) as e:
    data_prep.prepare('ag_news', tmp_path / 'data')
  assert '\n' not in str(e.value)
