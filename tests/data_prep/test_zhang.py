"""Tests of AG News and Amazon reviews, read from tables or an archive."""

import collections
import csv
import dataclasses
import hashlib
import pathlib
import shutil
import socket
import tarfile

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core import shuffle

from lra import data_prep
from lra.core import tasks
from lra.core.errors import UserError
from lra.data import prepared
from lra.data_prep import encode, zhang

FIXTURE = pathlib.Path(__file__).parents[1] / 'fixtures' / 'ag_news'
WORDS = {'World': 'accord', 'Sports': 'goal', 'Business': 'jets',
         'Sci/Tech': 'patch'}


@pytest.fixture(autouse=True)
def small(monkeypatch):
  """Expects the sizes of the fixture."""
  for name in zhang.CORPORA:
    expect(monkeypatch, name, sizes={'train': 12, 'test': 4}, val=4)


def expect(monkeypatch, name, **changes):
  monkeypatch.setitem(zhang.CORPORA, name, dataclasses.replace(
      zhang.CORPORA[name], **changes))


def documents(split):
  return [split.document(i).decode() for i in range(len(split))]


def test_items_keep_their_text_and_class(tmp_path):
  data = prepared.load('ag_news', tmp_path, FIXTURE)
  names = encode.names(tasks.get('ag_news'))
  both = {text: names[label] for name in ('train', 'val') for text, label in
          zip(documents(data.splits[name]), data.splits[name].labels,
              strict=True)}
  assert len(both) == 12
  for name, word in WORDS.items():
    assert [n for text, n in both.items() if word in text] == [name]
  assert ('Keeper saves two penalties in final The "old" keeper, 38, stopped '
          'two shots, and his side won the cup.') in both
  assert 'Café chain to open 200 shops The chain said it would hire 3,000 ' \
      'people by spring.' in both
  assert documents(data.splits['test'])[3] == (
      'Telescope sees faint moon The moon is 9 km wide\\and very dark.')
  assert {name: np.bincount(split.labels).tolist() for name, split in
          data.splits.items()} == {
              'train': [2] * 4, 'val': [1] * 4, 'test': [1] * 4}
  assert 'other bytes' in data.info['origin']


def test_folder_and_archive_give_the_same(tmp_path):
  archive = tmp_path / 'ag_news_csv.tar.gz'
  with tarfile.open(archive, 'w:gz') as made:
    made.add(FIXTURE, 'ag_news_csv')
  inside = tmp_path / 'unpacked'
  shutil.copytree(FIXTURE, inside / 'ag_news_csv')
  found = {prepared.load('ag_news', tmp_path / f'{i}', source).fingerprint
           for i, source in enumerate((FIXTURE, archive, inside))}
  assert len(found) == 1


def test_the_official_tables_are_known_by_their_hash(tmp_path, monkeypatch):
  for i, digest in enumerate((hashlib.sha256, hashlib.md5)):
    expect(monkeypatch, 'ag_news', hashes={
        split: digest((FIXTURE / f'{split}.csv').read_bytes()).hexdigest()
        for split in ('train', 'test')})
    data = prepared.load('ag_news', tmp_path / f'{i}', FIXTURE)
    assert data.info['origin'] == 'AG News (Zhang et al. 2015)'


@pytest.mark.parametrize('row, words', [
    (b'"5","a","b"\n', 'Row 13 of train.csv'),
    (b'"1","a"\n', 'Row 13 of train.csv'),
    (b'"1","a","b"c"\n', 'Row 13 of train.csv'),
    (b'"1","a","\xff"\n', 'Row 13 of train.csv'),
    (b'"1","a","b"\n', '13 rows instead of 12')])
def test_a_wrong_table_is_refused(tmp_path, row, words):
  source = shutil.copytree(FIXTURE, tmp_path / 'source')
  table = source / 'train.csv'
  table.write_bytes(table.read_bytes() + row)
  with pytest.raises(UserError, match=words) as e:
    prepared.load('ag_news', tmp_path / 'data', source)
  assert '\n' not in str(e.value)
  assert not list(tmp_path.glob('data/*/*/1.0.0'))


def test_a_folder_without_a_table_is_refused(tmp_path):
  source = shutil.copytree(FIXTURE, tmp_path / 'source')
  (source / 'test.csv').unlink()
  with pytest.raises(UserError, match='test.csv.*train.csv and test.csv'):
    prepared.load('ag_news', tmp_path / 'data', source)
  with pytest.raises(UserError, match='absent does not exist'):
    prepared.load('ag_news', tmp_path / 'data', tmp_path / 'absent')


def test_without_a_network_the_error_names_the_source(tmp_path, monkeypatch):
  with socket.socket() as s:  # no program listens at its port
    s.bind(('127.0.0.1', 0))
    url = f'http://127.0.0.1:{s.getsockname()[1]}/train.csv'
    expect(monkeypatch, 'ag_news', url=url.removesuffix('train.csv'))
    monkeypatch.setattr(
        tfds.download.DownloadManager, 'download',
        lambda *_: pytest.fail('TFDS was called; it would try for minutes'))
    with pytest.raises(UserError, match='--source=.../ag_news_csv') as e:
      prepared.load('ag_news', tmp_path / 'data')
  assert '\n' not in str(e.value) and url in str(e.value)


def test_downloaded_tables_are_told_apart(tmp_path, monkeypatch):
  """Each address has the size and the hash of its own table."""
  infos = zhang.CORPORA['ag_news'].url_infos()
  assert {url.rpartition('/')[2]: info.filename
          for url, info in infos.items()} == {
              'train.csv': 'train.csv', 'test.csv': 'test.csv'}
  monkeypatch.setattr(
      zhang.Zhang, 'fetch_all', lambda *_: [
          FIXTURE / info.filename for info in infos.values()])
  data = prepared.load('ag_news', tmp_path)
  count = collections.Counter(
      {name: len(split) for name, split in data.splits.items()})
  assert count == {'train': 8, 'val': 4, 'test': 4}


def write_reviews(folder):
  """Writes tables of reviews with 1 to 5 stars as Zhang et al. did."""
  folder.mkdir()
  rows = {split: [(i % 5 + 1, f'Title {i}', f'It "works", says {split} {i}.\\n')
                  for i in range(count)]
          for split, count in (('train', 12), ('test', 4))}
  for split, table in rows.items():
    with open(folder / f'{split}.csv', 'w', newline='') as file:
      csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator='\n').writerows(
          table)
  return rows


def test_reviews_keep_their_text_and_stars(tmp_path, monkeypatch):
  expect(monkeypatch, 'amazon', val=5)
  rows = write_reviews(tmp_path / 'amazon_review_full_csv')
  data = prepared.load('amazon', tmp_path / 'data', tmp_path)
  assert np.bincount(data.splits['val'].labels).tolist() == [1] * 5
  seen = {name: list(zip(documents(split), split.labels, strict=True))
          for name, split in data.splits.items()}
  for split, found in (('train', seen['train'] + seen['val']),
                       ('test', seen['test'])):
    assert sorted(found) == sorted(
        (f'{title} {text}', stars - 1) for stars, title, text in rows[split])
  assert encode.names(tasks.get('amazon'))[4] == '5 stars'


def test_a_large_split_needs_no_tensorflow(tmp_path, monkeypatch):
  """TFDS calls TensorFlow if a split has more bytes than this."""
  monkeypatch.setattr(shuffle, 'MAX_MEM_BUFFER_SIZE', 100)
  data = prepared.load('ag_news', tmp_path, FIXTURE)
  assert len(data.splits['train']) == 8
  assert shuffle.MAX_MEM_BUFFER_SIZE == 100


def test_reviews_come_from_files_only(tmp_path):
  with pytest.raises(UserError, match='--source of amazon must be') as e:
    data_prep.prepare('amazon', tmp_path / 'data')
  assert '\n' not in str(e.value) and not list(tmp_path.iterdir())
  write_reviews(tmp_path / 'source')
  table = tmp_path / 'source' / 'test.csv'
  table.write_text(table.read_text().replace('"4"', '"6"'))
  with pytest.raises(UserError, match='Row 4 of test.csv .*class from 1 to 5'):
    data_prep.prepare('amazon', tmp_path / 'data', tmp_path / 'source')
  assert not list((tmp_path / 'data').glob('*/*/1.0.0'))
