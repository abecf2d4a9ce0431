"""Tests of word pieces against a search for the longest piece."""

import json
import unicodedata

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.data import batches, wordpiece
from lra.data_prep.content import Content, split_of
from tests.helpers import tiny_bert

TEXTS = ('The bank said it, "no": cups.', 'Café NEW!', '', 'hidden 7 [PAD] end',
         'storing the storing of a ' * 9, '日本 it', 'a' * 101)


def written(folder, pieces=tiny_bert.PIECES, **settings):
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  if settings:
    (folder / 'tokenizer_config.json').write_text(json.dumps(settings))
  return folder


def split(texts):
  return split_of([text.encode() for text in texts], np.arange(len(texts)) % 4)


def expected(text, pieces, lowercase):
  """Returns the pieces of a text: the longest at each place of a word."""
  if lowercase:
    text = ''.join(c for c in unicodedata.normalize('NFD', text.lower())
                   if unicodedata.category(c) != 'Mn')
  apart = ''.join(
      f' {c} ' if unicodedata.category(c)[0] in 'PS' or ord(c) > 0x4dff else c
      for c in text)
  found = ['[CLS]']
  for word in apart.split():
    parts, start = [], 0
    while start < len(word):
      match = next((piece for end in range(len(word), start, -1) if (
          piece := ('##' if start else '') + word[start:end]) in pieces), None)
      if match is None or len(word) > 100:
        parts = ['[UNK]']
        break
      parts.append(match)
      start += len(match.removeprefix('##'))
    found += parts
  return [*found, '[SEP]']


@pytest.mark.parametrize('lowercase', [True, False])
def test_the_longest_pieces_are_found(tmp_path, lowercase):
  words = wordpiece.read(written(tmp_path, do_lower_case=lowercase))
  made = words.split(split(TEXTS), 1024)
  ids = batches.gather(made, np.arange(len(TEXTS)), 200)['tokens']
  for row, text in zip(ids, TEXTS, strict=True):
    pieces = [words.pieces[i] for i in row[row > 0]]
    assert pieces == expected(text, words.pieces, lowercase)
    assert not row[len(pieces):].any()
  assert made.labels.tolist() == [0, 1, 2, 3, 0, 1, 2]


def test_a_long_text_is_cut_before_its_end_mark(tmp_path):
  words = wordpiece.read(written(tmp_path))
  whole, cut = (words.split(split(TEXTS), n) for n in (1024, 12))
  for i in range(len(TEXTS)):
    long, short = (np.frombuffer(s.document(i), np.uint16)
                   for s in (whole, cut))
    assert len(short) == min(len(long), 12) and short[-1] == long[-1]
    np.testing.assert_array_equal(short[:-1], long[:len(short) - 1])


def test_forms_of_one_vocabulary_are_equal(tmp_path):
  """vocab.txt, the folder, tokenizer.json and our own copy give one hash."""
  text = written(tmp_path)
  found = [wordpiece.read(text), wordpiece.read(text / 'vocab.txt')]
  tokenizer = tmp_path / 'other' / 'tokenizer.json'
  tokenizer.parent.mkdir()
  tokenizer.write_text(json.dumps({
      'model': {'type': 'WordPiece', 'vocab': {
          piece: i for i, piece in enumerate(tiny_bert.PIECES)}},
      'normalizer': {'type': 'BertNormalizer', 'lowercase': True,
                     'strip_accents': None}}))
  found.append(wordpiece.read(tokenizer.parent))
  copy = tmp_path / 'copy'
  copy.mkdir()
  for name, content in found[0].contents().items():
    (copy / name).write_bytes(content)
  found.append(wordpiece.read(copy))
  assert len({words.sha256 for words in found}) == 1
  other = wordpiece.read(written(tmp_path, do_lower_case=False))
  assert other.sha256 != found[0].sha256


def test_the_fingerprint_of_the_data_covers_the_vocabulary(tmp_path):
  part = split(TEXTS)
  data = Content({'train': part, 'val': part, 'test': part},
                 {'fingerprint': 'abc'})
  words = wordpiece.read(written(tmp_path))
  others = [wordpiece.Vocabulary((*words.pieces, 'z9'), True),
            wordpiece.Vocabulary(words.pieces, False)]
  found = {v.prepared(data, 24).fingerprint for v in (words, words, *others)}
  assert len(found) == 3 and 'abc' not in found


def _tokenizer(piece):
  pieces = '[PAD]', '[UNK]', '[CLS]', '[SEP]', piece
  return {'model': {'vocab': {p: i for i, p in enumerate(pieces)}},
          'normalizer': {'type': 'BertNormalizer', 'lowercase': True}}


@pytest.mark.parametrize('name, content, culprit', [
    *(('vocab.txt', content, culprit) for content, culprit in (
        ('[CLS]\n[PAD]\n[SEP]\n[UNK]\n', 'first piece'),
        ('[PAD]\n[CLS]\n[SEP]\n', r'lacks the piece \[UNK\]'),
        ('[PAD]\n[CLS]\n[SEP]\n[UNK]\na\na\n', 'twice'),
        ('\n'.join(['[PAD]', '[CLS]', '[SEP]', '[UNK]', *map(
            str, range(2**15))]), '32,772 pieces'))),
    ('other.txt', '', 'No such file'),
    ('tokenizer.json', '[' * 100_000, 'nested'),
    *(('tokenizer.json', json.dumps(values), culprit) for values, culprit in (
        ({'model': {'type': 'BPE', 'vocab': {}}, 'normalizer': {}}, 'BPE'),
        ({'model': {'vocab': {'[PAD]': 0, 'a': 2}}, 'normalizer': {
            'type': 'BertNormalizer', 'lowercase': True}}, 'gaps'),
        ({'model': {'vocab': {'[PAD]': 0}}, 'normalizer': {
            'type': 'Lowercase'}}, 'normalizer'),
        ([], 'no vocabulary'), (_tokenizer('a\nb'), 'line end'),
        (_tokenizer('\ud800'), 'no vocabulary')))])
def test_what_is_no_vocabulary_is_refused(tmp_path, name, content, culprit):
  (tmp_path / name).write_text(content)
  with pytest.raises(UserError, match=culprit) as e:
    wordpiece.read(tmp_path)
  assert str(tmp_path) in str(e.value) and '\n' not in str(e.value)
