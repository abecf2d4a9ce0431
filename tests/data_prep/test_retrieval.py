"""Tests of document pairs, from the official AAN tables or RFC files."""

import gzip
import json
import pathlib
import shutil

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.data import prepared
from lra.data_prep import aan, retrieval
from tests.helpers.data_files import refused

FIXTURES = pathlib.Path(__file__).parent.parent / 'fixtures'
REAL = pathlib.Path(__file__).parents[3] / 'shared' / 'data' / 'rfc_citations'

# Texts of the AAN fixture by document id; P2 occurs with two texts.
TEXTS = {
    'P1': b'Parsing with tags',
    'P2': 'Résumé of naïve Bayes'.encode(),
    'P2x': b'Another text of P2',
    'P3': 'A literal\twith a tab, a \\ and café\n'.encode(),
    'P4': b'Plain with two tabs',
    'P5': b'',
    'P6': b"It's quoted \0 twice",
    'P7': b'"Quotes" stay, and b\'so\' do these',
    'P8': b'long ' * 800,
}
ROWS = {
    'train': [(1, 'P4', 'P1'), (0, 'P1', 'P2'), (1, 'P3', 'P4'),
              (0, 'P5', 'P6'), (1, 'P2x', 'P7'), (0, 'P8', 'P5'),
              (1, 'P7', 'P2')],
    'val': [(1, 'P1', 'P3'), (0, 'P4', 'P6')],
    'test': [(0, 'P6', 'P4'), (1, 'P2', 'P5')],
}


def examples(split):
  return [(int(label), split.document(a), split.document(b))
          for label, (a, b) in zip(split.labels, split.pairs, strict=True)]


def expected(rows, cut=4000):
  return [(label, TEXTS[a][:cut], TEXTS[b][:cut]) for label, a, b in rows]


def test_official_tables(tmp_path):
  data = prepared.load('retrieval', tmp_path, FIXTURES / 'aan')
  for name, rows in ROWS.items():
    assert examples(data.splits[name]) == expected(rows)
  assert len(data.splits['train'].offsets) - 1 == len(TEXTS)
  assert data.info['ids_with_other_text'] == 1
  assert data.splits['train'].tokens is data.splits['test'].tokens


def test_what_is_said_of_the_tables(tmp_path, monkeypatch, capsys):
  content = read_tables(FIXTURES / 'aan')
  assert content.info['origin'] == (
      'ACL Anthology Network, official tables, 7/2/2 of 147,086/18,090/17,437 '
      'rows, bytes literals decoded')
  assert 'warning: these tables of retrieval have 7/2/2 rows' in (
      capsys.readouterr().err)
  monkeypatch.setattr(aan, 'ROWS', {'train': 1, 'val': 1, 'test': 1})
  for name in aan.FILES.values():
    (tmp_path / name).write_bytes(b'1\tP1\tP2\tplain\tplain too\n')
  content = read_tables(tmp_path)
  assert content.info['origin'] == 'ACL Anthology Network, official tables'
  assert content.splits['val'].document(1) == b'plain too'
  assert 'warning' not in capsys.readouterr().err


def read_tables(folder):
  return retrieval.read_aan({k: folder / v for k, v in aan.FILES.items()})


@pytest.mark.parametrize('row, reason', [
    (b'1\tP1\tP2\tonly one text', '4 columns instead of 5'),
    (b'', '1 columns instead of 5'),
    (b'2\tP1\tP2\ta\tb', "the label is b'2' instead of 0 or 1"),
    (b'1\t\tP2\ta\tb', 'a document without an id'),
    (b"1\tP1\tP2\tb'\\xg'\tb", 'a bytes literal that cannot be read'),
    (b"1\tP1\tP2\tb'\xff'\tb", 'a bytes literal that cannot be read'),
    *((b'1\tP1\tP2\t%s\tb' % text, 'a bytes literal without its ') for text in (
        b"b'cut sho", b'b"cut', b"b'", b"b'a\\'", b"b'a', b'b'",
        b"b'' " + 200_000 * b'-' + b"b''")),
    (b'1\tP8\tP9\ttwo\tor three\ttexts', '6 columns instead of 5')])
def test_malformed_row(tmp_path, row, reason):
  tables = shutil.copytree(FIXTURES / 'aan', tmp_path / 'aan')
  path = tables / aan.FILES['train']
  with open(path, 'ab') as f:
    f.write(row + b'\n')
  with pytest.raises(UserError) as e:
    read_tables(tables)
  line = path.read_bytes().count(b'\n')
  assert f'{path}, line {line}: {reason}' in str(e.value)


def test_memory_does_not_grow_with_the_rows(tmp_path):
  """60 MB of rows repeat 40 documents, and reading needs less than 3 MB."""
  import tracemalloc
  texts = [bytes([97 + i % 26]) * 50_000 for i in range(40)]
  rng = np.random.default_rng(0)
  for name in aan.FILES.values():
    with open(tmp_path / name, 'wb') as f:
      for _ in range(200):
        a, b = rng.integers(0, 40, 2)
        f.write(b'0\tP%d\tP%d\t%s\t%s\n' % (a, b, texts[a], texts[b]))
  assert (tmp_path / aan.FILES['train']).stat().st_size > 20_000_000
  tracemalloc.start()
  found = aan.read({k: tmp_path / v for k, v in aan.FILES.items()}, 4000)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert len(found.heads) == 40
  assert peak < 3_000_000


def write_rfc(path, texts, rows):
  path.mkdir()
  with gzip.open(path / 'documents.jsonl.gz', 'wt') as f:
    for name, text in texts.items():
      f.write(json.dumps({'id': name, 'year': 1999, 'text': text}) + '\n')
  for name, lines in rows.items():
    with gzip.open(path / f'pairs.{name}.tsv.gz', 'wt') as f:
      f.writelines(f'{line}\n' for line in lines)
  return path


def read_rfc(folder, mini):
  return retrieval.read_rfc({key: folder / f'{name}.gz' for key, name in
                             retrieval.RFC_FILES.items()}, mini=mini)


RFC_TEXTS = {'rfc1': 'Host Software', 'rfc2': '', 'rfc3': 'é' * 3000,
             'rfc4': 'nobody cites this', 'rfc5': 'x' * 6000}
RFC_ROWS = {'train': ['1\trfc1\trfc5', '0\trfc3\trfc2'],
            'eval': ['1\trfc5\trfc1'], 'test': ['0\trfc1\trfc1']}


def test_rfc_layout(tmp_path):
  source = write_rfc(tmp_path / 'rfc', RFC_TEXTS, RFC_ROWS)
  data = prepared.load('retrieval_rfc', tmp_path, source)
  assert examples(data.splits['train']) == [
      (1, b'Host Software', b'x' * 4000), (0, 'é'.encode() * 2000, b'')]
  assert examples(data.splits['test']) == [
      (0, b'Host Software', b'Host Software')]
  assert len(data.splits['train'].offsets) - 1 == 4  # rfc4 is in no pair
  assert data.info['duplicates']['train and val'] == 1


def test_documents_in_words(tmp_path):
  """The most frequent words of train have the lowest codes; 0 is another word.

  A document that only test has adds nothing to the vocabulary.
  """
  texts = {'rfc1': 'b a. A b b', 'rfc2': 'C, c; c a a', 'rfc3': 'new a' * 40}
  source = write_rfc(tmp_path / 'rfc', texts, {
      'train': ['1\trfc1\trfc2'], 'eval': ['0\trfc2\trfc1'],
      'test': ['1\trfc3\trfc1']})
  data = prepared.load('rfc_words', tmp_path, source)
  assert [(label, *(np.frombuffer(d, np.uint16).tolist() for d in pair))
          for label, *pair in examples(data.splits['train'])] == [
              (1, [2, 1, 1, 2, 2], [3, 3, 3, 1, 1])]
  (_, only, first), = examples(data.splits['test'])
  assert np.frombuffer(only, np.uint16).tolist() == [0, *[0] * 39, 1]
  assert np.frombuffer(first, np.uint16).tolist() == [2, 1, 1, 2, 2]


@pytest.mark.parametrize('mini', [False, True])
def test_pairs_keep_their_labels_and_documents_their_heads(
    tmp_path, monkeypatch, mini):
  """Compares the pairs that are read with random texts and labels."""
  monkeypatch.setattr(
      retrieval, 'MINI_PAIRS', {'train': 20, 'val': 6, 'test': 10})
  rng = np.random.default_rng(0)
  texts = {f'rfc{i}': ''.join(map(chr, rng.integers(32, 127, 5000)))
           for i in range(12)}
  rows = {name: [f'{rng.integers(2)}\trfc{a}\trfc{b}'
                 for a, b in rng.integers(0, 12, (60, 2))]
          for name in ('train', 'eval', 'test')}
  for lines in rows.values():  # keep one label for each pair
    lines[:] = {line.split('\t', 1)[1]: line for line in lines}.values()
  source = write_rfc(tmp_path / 'rfc', texts, rows)
  content = read_rfc(source, mini)
  cut = 512 if mini else 4000
  for split, name in (('train', 'train'), ('val', 'eval'), ('test', 'test')):
    known = [(int(y), texts[a].encode()[:cut], texts[b].encode()[:cut])
             for y, a, b in (line.split('\t') for line in rows[name])]
    found = examples(content.splits[split])
    if mini:
      assert len(found) == retrieval.MINI_PAIRS[split]
      assert set(found) <= set(known)
    else:
      assert found == known


@pytest.mark.parametrize('name, row, reason', [
    ('pairs.train.tsv', '1\trfc1\trfc9', "3: document 'rfc9' does not exist"),
    ('pairs.train.tsv', '1\trfc1', '3: 2 columns instead of 3'),
    ('pairs.eval.tsv', '1\trfc1\trfc2\trfc3', '2: 4 columns instead of 3'),
    ('pairs.test.tsv', 'yes\trfc1\trfc2', "2: the label is 'yes'"),
    *(('documents.jsonl', row, '6: not an object with id and text') for row in (
        '{"id": "rfc1"', '["rfc1", "text"]', '{"id": "rfc1", "text": 3}',
        '{"id": [1], "text": "x"}', 'null', '[' * 50_000,
        '{"id": "b", "text": "\\ud800"}')),
    ('documents.jsonl', '{"id": "rfc1", "text": "other"}',
     "6: document 'rfc1' again, with another")])
def test_malformed_row_of_the_rfc(tmp_path, capsys, name, row, reason):
  source = write_rfc(tmp_path / 'rfc', RFC_TEXTS, RFC_ROWS)
  with gzip.open(source / f'{name}.gz', 'at') as f:
    f.write(row + '\n')
  assert f'{name}.gz, line {reason}' in refused(
      capsys, 'retrieval_rfc', source, tmp_path / 'data')


@pytest.mark.full
@pytest.mark.skipif(not REAL.exists(), reason='no shared/data/rfc_citations')
def test_real_pairs():
  """Compares the prepared RFC pairs with a second reading of the files."""
  content = read_rfc(REAL, mini=False)
  texts = {}
  with gzip.open(REAL / 'documents.jsonl.gz') as f:
    for line in f:
      document = json.loads(line)
      texts[document['id']] = document['text'].encode()[:4000]
  for split, name in (('train', 'train'), ('val', 'eval'), ('test', 'test')):
    with gzip.open(REAL / f'pairs.{name}.tsv.gz', 'rt') as f:
      rows = [line.split() for line in f]
    found = content.splits[split]
    assert len(rows) == len(found)
    for i in range(0, len(rows), 97):
      label, first, second = rows[i]
      a, b = found.pairs[i]
      assert int(label) == found.labels[i]
      assert texts[first] == found.document(a)
      assert texts[second] == found.document(b)
  mini = read_rfc(REAL, mini=True).splits
  for name, size in retrieval.MINI_PAIRS.items():
    assert np.bincount(mini[name].labels).tolist() == [size // 2] * 2
