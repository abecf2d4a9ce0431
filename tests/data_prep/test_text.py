"""Tests of IMDB reviews: splits, cuts, and the origins that are known."""

import hashlib

import numpy as np
import pytest

from lra.core import tasks
from lra.core.errors import UserError
from lra.data import batches, prepared
from lra.data_prep import text
from lra.data_prep.source import Origin, Source
from tests.helpers.data_files import (
  documents,
  served,
  write_archive,
  write_folder,
)

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
      name = f'{folder}/{i}_{9 if folder.endswith("pos") else 1}.txt'
      files[name] = SPECIAL.get(name, f'review {i} of {folder}'.encode())
  monkeypatch.setattr(text, 'REVIEWS_PER_FOLDER', 10)
  monkeypatch.setattr(text, 'TOTAL_BYTES', sum(map(len, files.values())))
  monkeypatch.setattr(text, 'VAL_REVIEWS', 6)
  return {f'aclImdb/{name}': data for name, data in files.items()}


OTHERS = {'aclImdb/README': b'', 'aclImdb/train/unsup/0_0.txt': b'unlabelled',
          'aclImdb/train/labeledBow.feat': b'1 0:9',
          'aclImdb/train/urls_pos.txt': b'http'}


def archive(folder, reviews):
  return write_archive(folder / 'a.tar.gz', OTHERS | reviews)


def read(path):
  return text.read_reviews(Source(path))


def test_archive_and_directories_give_the_same(reviews, tmp_path):
  directory = write_folder(tmp_path / 'unpacked', OTHERS | reviews)
  (tmp_path / 'renamed').symlink_to(directory / 'aclImdb')
  loaded = [prepared.load('text', tmp_path / str(i), source)
            for i, source in enumerate((
                archive(tmp_path, reviews), directory, directory / 'aclImdb',
                tmp_path / 'renamed'))]
  assert len({d.fingerprint for d in loaded}) == 1
  # The archive was prepared already; the folder holds the same reviews.
  again = prepared.load('text', tmp_path / '0', directory)
  assert again.fingerprint == loaded[0].fingerprint


def test_splits_and_edge_cases(reviews, tmp_path):
  data = prepared.load('text', tmp_path, archive(tmp_path, reviews))
  assert {k: np.bincount(s.labels).tolist() for k, s in data.splits.items()
          } == {'train': [7, 7], 'val': [3, 3], 'test': [10, 10]}
  train = documents(data.splits['train']) + documents(data.splits['val'])
  assert sorted(train) == sorted(
      v[:4000] for k, v in reviews.items() if '/train/' in k)
  for split in ('train', 'val'):
    for document, label in zip(
        documents(data.splits[split]), data.splits[split].labels, strict=True):
      assert document == b'seen in train' or (
          (b'train/pos' in document) == label)
  test = documents(data.splits['test'])
  assert test.count(b'') == 1
  assert SPLIT_CHARACTER.encode()[:4000] in test
  assert LONG.encode()[:4000] in test and max(map(len, test)) == 4000
  found = data.info['duplicates']
  assert found['train and test'] + found['val and test'] == 1
  assert found['train'] == found['val'] == found['test'] == 0
  # The id of a byte is its value plus one; an empty review is all padding.
  places = [test.index(bytes(range(256))), test.index(b'')]
  tokens = batches.gather(data.splits['test'], places, 300)['tokens']
  assert tokens[0].tolist() == [*range(1, 257), *[0] * 44]
  assert not tokens[1].any()
  assert tokens.max() < tasks.get('text').vocab_size


def test_mini_is_a_part(reviews, tmp_path, monkeypatch):
  monkeypatch.setitem(text.VARIANTS, 'mini', (512, (8, 2, 12)))
  source = archive(tmp_path, reviews)
  full = prepared.load('text', tmp_path, source).splits
  mini = prepared.load('text_mini', tmp_path, source).splits
  for name, size in (('train', 8), ('val', 2), ('test', 12)):
    assert np.bincount(mini[name].labels).tolist() == [size // 2] * 2
    heads = {d[:512] for d in documents(full[name])}
    assert set(documents(mini[name])) <= heads


@pytest.mark.parametrize('write', [write_archive, write_folder])
@pytest.mark.parametrize('change, reason', [
    ('/train/pos', 'has 0 reviews in aclImdb/train/pos instead of 10'),
    ('/test/neg/3', 'has 9 reviews in aclImdb/test/neg instead of 10'),
    ('', 'source has no reviews aclImdb/train/neg/.* must be reviews'),
    (b'!', 'bytes instead of')])
def test_other_reviews_are_refused(reviews, tmp_path, write, change, reason):
  if isinstance(change, str):
    reviews = {k: v for k, v in reviews.items() if change not in k}
  else:
    for i in (3, 4):
      reviews[f'aclImdb/train/pos/{i}_9.txt'] += change
  path = write(tmp_path / 'source', OTHERS | reviews)
  with pytest.raises(UserError, match=reason):
    text.read_reviews(Source(path, '--source must be reviews'))


def test_a_copy_is_known_by_its_reviews(reviews, tmp_path, monkeypatch):
  """A known copy is identified by size and hash, from an archive or a folder.
  """
  directory = write_folder(tmp_path / 'unpacked', reviews)
  found, origin = read(directory)
  assert origin == 'Large Movie Review Dataset, by the size of its reviews'
  monkeypatch.setattr(text, 'COPY_BYTES', text.TOTAL_BYTES)
  monkeypatch.setattr(text, 'COPY_SHA256', text.digest(found))
  monkeypatch.setattr(text, 'TOTAL_BYTES', 10 * text.TOTAL_BYTES)
  for source in directory, archive(tmp_path, reviews):
    assert 'a copy of' in read(source)[1]
  review = directory / 'aclImdb/train/pos/3_9.txt'
  review.write_bytes(review.read_bytes().swapcase())
  with pytest.raises(UserError, match='unpacked have the size of a known copy'):
    read(directory)


def test_the_original_is_downloaded_and_known_by_its_checksum(
    reviews, tmp_path, monkeypatch):
  """The archive's checksum suffices, even if the size of the reviews differs.
  """
  (tmp_path / 'web').mkdir()
  data = archive(tmp_path / 'web', reviews).read_bytes()
  monkeypatch.setattr(text, 'TOTAL_BYTES', text.TOTAL_BYTES + 1)
  with served(tmp_path / 'web') as address:
    monkeypatch.setattr(text, 'SHA256', hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(text.Text, 'origin', Origin('', '', {
        f'{address}/a.tar.gz': (len(data), text.SHA256)}))
    loaded = prepared.load('text', tmp_path / 'data')
  assert len(loaded.splits['test']) == 20
  assert loaded.info['origin'] == 'Large Movie Review Dataset'
