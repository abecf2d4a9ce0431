"""Tests of IMDB reviews word by word: vocabulary, cut and stored codes."""

import re

import numpy as np
import pytest

from lra.core import tasks
from lra.data import batches, prepared
from lra.data_prep import describe, encode, text, words
from tests.helpers.data_files import write_folder

REVIEW = "It's BAD -- really, really bad!<br /><br />Don't (ever)\tsee it. "


@pytest.fixture
def reviews(monkeypatch):
  """Makes six reviews per folder, path -> text; `text` then expects them."""
  made, rng = {}, np.random.default_rng(0)
  for folder in text.FOLDERS:
    for i in range(6):
      said = ' '.join(f'w{n}' for n in rng.geometric(0.02, 30 * i))
      made[f'aclImdb/{folder}/{i}_1.txt'] = f'{REVIEW if i < 4 else ""}{said}'
  monkeypatch.setattr(text, 'REVIEWS_PER_FOLDER', 6)
  monkeypatch.setattr(text, 'TOTAL_BYTES', sum(map(len, made.values())))
  monkeypatch.setattr(text, 'VAL_REVIEWS', 4)
  return made


def load(reviews, folder, task='imdb_words'):
  source = write_folder(folder / 'source', {
      name: said.encode() for name, said in reviews.items()})
  return prepared.load(task, folder / 'data', source)


def test_words_are_those_of_keras():
  """Without its filters, as `keras.preprocessing.text` defines them."""
  assert words.words_of(REVIEW.encode()) == (
      "it's bad really really bad br br don't ever see it").split()


@pytest.mark.parametrize('task,length', [
    ('imdb_words', 32), ('imdb_words_200', 200)])
def test_codes_are_ranks_of_the_last_words(
    reviews, tmp_path, monkeypatch, task, length):
  monkeypatch.setattr(words, 'WORDS', 40)
  data = load(reviews, tmp_path, task)
  # The splits are in the order of the folders, as the labels show; here each
  # test review is read anew, with another expression for a word.
  known = [re.findall(r"[\w']+", reviews[name].lower())
           for folder in ('neg', 'pos') for name in sorted(reviews)
           if f'test/{folder}' in name]
  test = data.splits['test']
  codes = np.split(test.tokens, test.offsets[1:-1])
  assert [len(c) for c in codes] == [min(len(w), length) for w in known]
  word_of = {}
  for said, found in zip(known, codes, strict=True):
    for word, code in zip(said[-length:], found.tolist(), strict=True):
      assert word_of.setdefault(code or word, word) == word
  assert len([code for code in word_of if isinstance(code, int)]) > 20
  # A code is the rank of its word in train.
  train = data.splits['train'].tokens
  ranked = [np.sum(train == code) for code in range(1, 41)]
  assert length < 200 or ranked == sorted(ranked, reverse=True)


def test_stored_codes_need_two_bytes(reviews, tmp_path, monkeypatch):
  """Codes above 255 are read back as they were stored."""
  rare = ' '.join(f'x{i}' for i in range(400))
  for name in reviews:
    if 'train' in name:
      reviews[name] += f' {rare}'
  monkeypatch.setattr(text, 'TOTAL_BYTES', sum(map(len, reviews.values())))
  data = load(reviews, tmp_path, 'imdb_words_200')
  train = data.splits['train']
  assert train.tokens.dtype == np.uint16 and train.tokens.max() > 255
  batch = batches.gather(train, [0], 200)['tokens'][0]
  # The last words are as frequent as each other, and in alphabetical order.
  order = np.argsort([f'x{i}' for i in range(200, 400)])
  assert (np.diff(batch[order]) > 0).all()
  chosen = prepared.chosen(train, [1])
  np.testing.assert_array_equal(
      chosen.tokens, train.tokens[train.offsets[1]:train.offsets[2]])
  assert describe.describe('imdb_words_200', data)


def test_a_text_of_a_user_has_no_ranks():
  with pytest.raises(encode.NoExample, match='Example 0.*imdb_words.*ranks'):
    encode.split(tasks.get('imdb_words'), ['a good film'])
