"""Tests of AG News and Amazon reviews, read from tables or an archive."""

import codecs
import dataclasses
import hashlib
import pathlib
import shutil
import tarfile

import numpy as np
import pytest
from tensorflow_datasets.core import shuffle

from lra.core import tasks
from lra.data import prepared
from lra.data_prep import encode, zhang
from tests.helpers.data_files import documents, labelled, refused

FIXTURE = pathlib.Path(__file__).parents[1] / 'fixtures' / 'ag_news'
WORDS = {'World': 'accord', 'Sports': 'goal', 'Business': 'jets',
         'Sci/Tech': 'patch'}


@pytest.fixture(autouse=True)
def small(monkeypatch):
  """Expects the sizes of the fixture."""
  expect(monkeypatch, 'ag_news', sizes={'train': 12, 'test': 4}, val=4)


def expect(monkeypatch, name, **changes):
  monkeypatch.setitem(zhang.CORPORA, name, dataclasses.replace(
      zhang.CORPORA[name], **changes))


def test_items_keep_their_text_and_class(tmp_path, monkeypatch):
  # TFDS would call TensorFlow if a split had more bytes than this.
  monkeypatch.setattr(shuffle, 'MAX_MEM_BUFFER_SIZE', 100)
  data = prepared.load('ag_news', tmp_path, FIXTURE)
  assert shuffle.MAX_MEM_BUFFER_SIZE == 100
  names = encode.names(tasks.get('ag_news'))
  both = {text.decode(): names[label] for text, label in labelled(
      data.splits['train'], data.splits['val'])}
  assert len(both) == 12
  for name, word in WORDS.items():
    assert [n for text, n in both.items() if word in text] == [name]
  assert ('Keeper saves two penalties in final The "old" keeper, 38, stopped '
          'two shots, and his side won the cup.') in both
  assert 'Café chain to open 200 shops The chain said it would hire 3,000 ' \
      'people by spring.' in both
  assert documents(data.splits['test'])[3].decode() == (
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
  shutil.copytree(FIXTURE, inside / 'other_csv')
  (inside / 'other_csv' / 'train.csv').write_text('')
  found = {prepared.load('ag_news', tmp_path / f'{i}', source).fingerprint
           for i, source in enumerate((FIXTURE, archive, inside))}
  assert len(found) == 1


@pytest.mark.parametrize('digest', [hashlib.sha256, hashlib.md5])
def test_the_official_tables_are_known_by_their_hash(
    tmp_path, monkeypatch, digest):
  expect(monkeypatch, 'ag_news', hashes={
      split: digest((FIXTURE / f'{split}.csv').read_bytes()).hexdigest()
      for split in ('train', 'test')})
  data = prepared.load('ag_news', tmp_path, FIXTURE)
  assert data.info['origin'] == 'AG News (Zhang et al. 2015)'


@pytest.mark.parametrize('row, words', [
    (b'"5","a","b"\n', 'Row 13 of train.csv'),
    (b'"1","a"\n', 'Row 13 of train.csv'),
    (b'"1","a","b"c"\n', 'Row 13 of train.csv'),
    (b'"1","a","\xff"\n', 'Row 13 of train.csv'),
    (b'"1","a","b"\n', '13 rows instead of 12'),
    (None, 'has no train.csv: --source of ag_news must be a folder with')])
def test_a_wrong_table_is_refused(tmp_path, capsys, row, words):
  table = shutil.copytree(FIXTURE, tmp_path / 'source') / 'train.csv'
  if row:
    table.write_bytes(table.read_bytes() + row)
  else:
    table.unlink()
  assert words in refused(
      capsys, 'ag_news', tmp_path / 'source', tmp_path / 'data')


@pytest.mark.parametrize('start', [b'', codecs.BOM_UTF8])
def test_a_field_may_be_longer_than_the_default_of_csv(start):
  corpus = dataclasses.replace(zhang.CORPORA['ag_news'], sizes={'test': 1})
  (_, text, label), = zhang.read_table(
      start + b'"2","a","' + b'b' * 200_000 + b'"\n', corpus, 'test')
  assert text == b'a ' + b'b' * 200_000 and label == 1


def test_each_corpus_has_the_classes_of_its_task():
  for name, corpus in zhang.CORPORA.items():
    task = tasks.get(name)
    assert encode.names(task) == corpus.classes
    assert len(corpus.classes) == task.num_classes
    assert corpus.val % task.num_classes == 0
