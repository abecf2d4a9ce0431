"""Tests of IMDB reviews, read from an archive, a folder or the network."""

import functools
import hashlib
import http.server
import io
import pathlib
import socket
import tarfile
import threading

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums

from lra.core import tasks
from lra.core.errors import UserError
from lra.data import batches, prepared
from lra.data_prep import text
from tests.helpers import damage

REAL = (pathlib.Path(__file__).parents[3] / 'shared' / 'data' / 'imdb'
        / 'aclImdb_v1.tar.gz')

# The cut at 4000 bytes splits the two-byte character at bytes 3999 and 4000.
SPLIT_CHARACTER = 'x' * 3999 + 'é' + 'tail'
LONG = 'a long review, ' * 400
SPECIAL = {'test/pos/0_9.txt': SPLIT_CHARACTER.encode(),
           'test/pos/1_9.txt': b'', 'test/neg/0_1.txt': LONG.encode(),
           'test/neg/1_1.txt': b'seen in train', 'train/neg/1_1.txt':
           b'seen in train', 'test/neg/2_1.txt': bytes(range(256))}


@pytest.fixture
def reviews(monkeypatch):
  """Makes ten reviews per folder, path -> bytes; `text` then expects them."""
  files = {}
  for folder in text.FOLDERS:
    for i in range(10):
      rating = 9 if folder.endswith('pos') else 1
      name = f'{folder}/{i}_{rating}.txt'
      files[name] = SPECIAL.get(name, f'review {i} of {folder}'.encode())
  monkeypatch.setattr(text, 'REVIEWS_PER_FOLDER', 10)
  monkeypatch.setattr(text, 'TOTAL_BYTES', sum(map(len, files.values())))
  monkeypatch.setattr(text, 'VAL_REVIEWS', 6)
  return files


def write_archive(path, files, packed='gz'):
  """Writes an archive that, like the original, has folders and other files."""
  extra = {'README': b'', 'train/unsup/0_0.txt': b'unlabelled',
           'train/labeledBow.feat': b'1 0:9', 'train/urls_pos.txt': b'http'}
  with tarfile.open(path, f'w:{packed}') as archive:
    folder = tarfile.TarInfo('aclImdb/train/pos')
    folder.type = tarfile.DIRTYPE
    archive.addfile(folder)
    for name, data in {**extra, **files}.items():
      member = tarfile.TarInfo(f'aclImdb/{name}')
      member.size = len(data)
      archive.addfile(member, io.BytesIO(data))
  return path


def write_directory(path, files):
  for name, data in files.items():
    file = path / 'aclImdb' / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
  return path


def documents(split):
  return [split.document(i) for i in range(len(split))]


def test_archive_and_directories_give_the_same(reviews, tmp_path):
  archive = write_archive(tmp_path / 'a.tar.gz', reviews)
  directory = write_directory(tmp_path / 'unpacked', reviews)
  loaded = [prepared.load('text', tmp_path / str(i), source) for i, source in
            enumerate((archive, directory, directory / 'aclImdb'))]
  assert len({d.fingerprint for d in loaded}) == 1
  # The archive was prepared already; the folder holds the same reviews.
  again = prepared.load('text', tmp_path / '0', directory)
  assert again.fingerprint == loaded[0].fingerprint


def test_splits(reviews, tmp_path):
  archive = write_archive(tmp_path / 'a.tar.gz', reviews)
  splits = prepared.load('text', tmp_path, archive).splits
  assert {k: np.bincount(s.labels).tolist() for k, s in splits.items()} == {
      'train': [7, 7], 'val': [3, 3], 'test': [10, 10]}
  train = documents(splits['train']) + documents(splits['val'])
  assert sorted(train) == sorted(
      v[:4000] for k, v in reviews.items() if k.startswith('train'))
  for split in ('train', 'val'):
    for document, label in zip(
        documents(splits[split]), splits[split].labels, strict=True):
      assert document == b'seen in train' or (
          (b'train/pos' in document) == label)


def test_edge_cases(reviews, tmp_path):
  archive = write_archive(tmp_path / 'a.tar.gz', reviews)
  data = prepared.load('text', tmp_path, archive)
  test = documents(data.splits['test'])
  assert test.count(b'') == 1
  assert SPLIT_CHARACTER.encode()[:4000] in test
  assert LONG.encode()[:4000] in test and max(map(len, test)) == 4000
  assert bytes(range(256)) in test
  found = data.info['duplicates']
  assert found['train and test'] + found['val and test'] == 1
  assert found['train'] == found['val'] == found['test'] == 0


def test_ids_of_a_batch(reviews, tmp_path):
  """The id of a byte is its value plus one; an empty review is all padding."""
  archive = write_archive(tmp_path / 'a.tar.gz', reviews)
  test = prepared.load('text', tmp_path, archive).splits['test']
  found = documents(test)
  places = [found.index(bytes(range(256))), found.index(b'')]
  tokens = batches.gather(test, places, 300)['tokens']
  assert tokens[0].tolist() == [*range(1, 257), *[0] * 44]
  assert not tokens[1].any()
  assert tokens.max() < tasks.get('text').vocab_size


def test_mini_is_a_part(reviews, tmp_path, monkeypatch):
  monkeypatch.setitem(text.VARIANTS, 'mini', (512, (8, 2, 12)))
  archive = write_archive(tmp_path / 'a.tar.gz', reviews)
  full = prepared.load('text', tmp_path, archive).splits
  mini = prepared.load('text_mini', tmp_path, archive).splits
  for name, size in (('train', 8), ('val', 2), ('test', 12)):
    assert np.bincount(mini[name].labels).tolist() == [size // 2] * 2
    heads = {d[:512] for d in documents(full[name])}
    assert set(documents(mini[name])) <= heads


def test_files_that_macos_leaves_are_passed_over(reviews, tmp_path):
  want = text.read_reviews(write_directory(tmp_path / 'clean', reviews))
  beside = {f'{name.rpartition("/")[0]}/._{name.rpartition("/")[2]}':
            b'\0\5\x16\7Mac OS X' for name in reviews}
  for source in (write_archive(tmp_path / 'a.tar.gz', reviews | beside),
                 write_directory(tmp_path / 'unpacked', reviews | beside)):
    assert text.read_reviews(source) == want


@pytest.mark.parametrize('drop, reason', [
    ('train/pos', 'has 0 reviews in aclImdb/train/pos instead of 10'),
    ('test/neg/3', 'has 9 reviews in aclImdb/test/neg instead of 10')])
def test_missing_reviews(reviews, tmp_path, drop, reason):
  left = {k: v for k, v in reviews.items() if not k.startswith(drop)}
  for source in (write_archive(tmp_path / 'a.tar.gz', left),
                 write_directory(tmp_path / 'unpacked', left)):
    with pytest.raises(UserError, match=reason):
      text.read_reviews(source)


def test_altered_review(reviews, tmp_path):
  reviews['train/pos/3_9.txt'] += b'!'
  with pytest.raises(UserError, match='bytes instead of'):
    text.read_reviews(write_archive(tmp_path / 'a.tar.gz', reviews))


def test_a_copy_is_known_by_its_reviews(reviews, tmp_path, monkeypatch):
  """A known copy is identified by size and hash, from an archive or a folder.
  """
  directory = write_directory(tmp_path / 'unpacked', reviews)
  found, origin = text.read_reviews(directory)
  assert origin == 'Large Movie Review Dataset, by the size of its reviews'
  monkeypatch.setattr(text, 'COPY_BYTES', text.TOTAL_BYTES)
  monkeypatch.setattr(text, 'COPY_SHA256', text.digest(found))
  monkeypatch.setattr(text, 'TOTAL_BYTES', 10 * text.TOTAL_BYTES)
  archive = write_archive(tmp_path / 'a.tar.gz', reviews)
  for source in directory, archive:
    assert 'a copy of' in text.read_reviews(source)[1]
  review = directory / 'aclImdb/train/pos/3_9.txt'
  review.write_bytes(review.read_bytes().swapcase())
  with pytest.raises(UserError, match='unpacked have the size of a known copy'):
    text.read_reviews(directory)


def test_the_original_is_known_by_its_checksum(
    reviews, tmp_path, monkeypatch):
  """The archive's checksum suffices, even if the size of the reviews differs.
  """
  archive = write_archive(tmp_path / 'a.tar.gz', reviews)
  use_url(monkeypatch, 'http://a', archive.read_bytes())
  monkeypatch.setattr(text, 'TOTAL_BYTES', text.TOTAL_BYTES + 1)
  data = prepared.load('text', tmp_path, archive)
  assert data.info['origin'] == 'Large Movie Review Dataset'


@pytest.mark.parametrize('packed', ['gz', 'bz2', 'xz'])
def test_flipped_bits_of_an_archive(reviews, tmp_path, packed):
  """A flipped bit gives the same reviews or an error that names the archive."""
  archive = write_archive(tmp_path / 'a', reviews, packed)
  whole, _ = text.read_reviews(archive)
  data = archive.read_bytes()
  for place in range(20, len(data), len(data) // 80):
    archive.write_bytes(data[:place] + bytes([data[place] ^ 1])
                        + data[place + 1:])
    try:
      assert text.read_reviews(archive)[0] == whole
    except UserError as e:
      assert str(archive) in str(e)


def test_the_checksum_behind_the_last_member_is_compared(reviews, tmp_path):
  archive = write_archive(tmp_path / 'a.tar.gz', reviews)
  damage.flip_a_bit(archive, -8)
  with pytest.raises(UserError, match='a.tar.gz is damaged .*CRC'):
    text.read_reviews(archive)


def test_archives_that_are_not_packed(reviews, tmp_path):
  archive = write_archive(tmp_path / 'a.tar', reviews, '')
  assert text.read_reviews(archive)[0] == text.read_reviews(
      write_directory(tmp_path / 'unpacked', reviews))[0]


def test_a_source_of_another_kind(tmp_path):
  write_directory(tmp_path / 'source', {'reviews.csv': b'a,b'})
  with pytest.raises(UserError, match='source has no reviews aclImdb/train/neg/'
                     '.* must be aclImdb_v1.tar.gz or the directory'):
    text.read_reviews(tmp_path / 'source')


@pytest.mark.parametrize('keep', [0.0, 0.3, 0.9])
def test_truncated_archive(reviews, tmp_path, keep):
  archive = write_archive(tmp_path / 'a.tar.gz', reviews)
  data = archive.read_bytes()
  archive.write_bytes(data[:int(keep * len(data))])
  # If the cut lies between two members, tarfile reports no error. Then too few
  # reviews show it.
  with pytest.raises(UserError, match='(download|unpack) it again'):
    prepared.load('text', tmp_path / 'data', archive)
  assert not (tmp_path / 'data' / 'text' / 'lra' / '1.0.0').exists()


def test_not_an_archive(tmp_path):
  (tmp_path / 'a.tar.gz').write_text('<html>not found</html>' * 1000)
  with pytest.raises(UserError, match='not an archive'):
    text.read_reviews(tmp_path / 'a.tar.gz')


class QuietHandler(http.server.SimpleHTTPRequestHandler):

  def log_message(self, *args):
    """Prints no log of requests."""


@pytest.fixture
def server(tmp_path):
  """A web server for `tmp_path/web`; yields its address."""
  folder = tmp_path / 'web'
  folder.mkdir()
  handler = functools.partial(QuietHandler, directory=folder)
  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
  threading.Thread(target=server.serve_forever, daemon=True).start()
  yield f'http://127.0.0.1:{server.server_port}'
  server.shutdown()
  server.server_close()


def test_download(reviews, tmp_path, server, monkeypatch):
  archive = write_archive(tmp_path / 'web' / 'a.tar.gz', reviews)
  use_url(monkeypatch, f'{server}/a.tar.gz', archive.read_bytes())
  data = prepared.load('text', tmp_path / 'data')
  assert len(data.splits['test']) == 20


@pytest.mark.parametrize('name', ['a.tar.gz', 'absent.tar.gz'])
def test_download_of_something_else(
    reviews, tmp_path, server, monkeypatch, name):
  archive = write_archive(tmp_path / 'web' / 'a.tar.gz', reviews)
  use_url(monkeypatch, f'{server}/{name}', archive.read_bytes() + b'more')
  with pytest.raises(UserError) as e:
    prepared.load('text', tmp_path / 'data')
  assert '--task=text --source=.../aclImdb_v1.tar.gz' in str(e.value)
  assert '\n' not in str(e.value)


def test_without_a_network_nothing_is_tried_for_long(tmp_path, monkeypatch):
  with socket.socket() as s:  # no program listens at its port
    s.bind(('127.0.0.1', 0))
    use_url(monkeypatch, f'http://127.0.0.1:{s.getsockname()[1]}/a', b'')
    monkeypatch.setattr(
        tfds.download.DownloadManager, 'download',
        lambda *_: pytest.fail('TFDS was called; it would try for minutes'))
    folder = tmp_path / 'typo' / 'text' / 'lra'
    with pytest.raises(UserError, match='--source=.../aclImdb_v1.tar.gz') as e:
      prepared.load('text', tmp_path / 'typo')
    assert str(e.value).startswith(f'{folder} has no prepared data set, and ')
    assert not list(tmp_path.iterdir())


def use_url(monkeypatch, url, expected):
  monkeypatch.setattr(text, 'URL', url)
  monkeypatch.setattr(text.Text, 'url_infos', {url: checksums.UrlInfo(
      size=len(expected), checksum=hashlib.sha256(expected).hexdigest(),
      filename='a.tar.gz')})


@pytest.mark.full
@pytest.mark.skipif(not REAL.exists(), reason='no IMDB archive in shared/data')
def test_real_reviews(tmp_path):
  data = prepared.load('text_mini', tmp_path, REAL)
  assert {k: np.bincount(s.labels).tolist() for k, s in
          data.splits.items()} == {
              'train': [10_000, 10_000], 'val': [500, 500],
              'test': [2500, 2500]}
  lengths = np.diff(data.splits['train'].offsets)
  assert lengths.max() == 512 and lengths.min() > 0
