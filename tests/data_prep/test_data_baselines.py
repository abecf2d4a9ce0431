"""Compares the baselines with brute force, and checks their records."""

import dataclasses

import numpy as np
import pytest

from lra.core import bits
from lra.data import baselines as floors_lib
from lra.data_prep import baselines, listops, trees
from lra.data_prep.content import (
  Content,
  fingerprint,
  images_split,
  split_of,
)

RNG = np.random.default_rng(0)


def test_the_commonest_labels_are_counted_in_train():
  train = split_of(
      [b'\x0a\x01', b'\x0a\x02', b'\x0a\x03', b'\x0b\x01', b'\x0b\x02'],
      [0, 0, 9, 9, 9])
  test = split_of(
      [b'\x0a\x09', b'\x0a\x09', b'\x0b\x09', b'\x0b\x09', b'\x0b\x09'],
      [0, 9, 9, 0, 9])
  assert baselines.first_operator(train, test).tolist() == [
      True, False, True, False, True]
  assert baselines.majority(train, test).tolist() == [
      False, True, True, False, True]


@pytest.mark.parametrize('levels', [3, 1000])
def test_best_threshold(levels):
  """No threshold has a higher accuracy, even with many equal scores."""
  linear = pytest.importorskip('lra.data_prep.linear')
  for count in (*range(2, 40), 200):
    scores = RNG.integers(0, levels, count) / levels
    labels = (scores + RNG.normal(0, 0.5, count) > 0.5).astype(np.int32)
    found = linear.best_threshold(scores, labels)
    best = max(np.mean((scores >= t) == labels) for t in scores)
    assert np.mean((scores >= found) == labels) == best


def test_ngram_features():
  """Features equal n-gram counts made with a dict for each document.

  No n-gram spans two documents.
  """
  linear = pytest.importorskip('lra.data_prep.linear')
  documents = [b'abab', b'', b'b', b'zzzzzzzz', b'abcdefgh']
  split = split_of(documents, [0] * len(documents))
  rows = linear.ngram_features(split)
  assert rows.shape == (5, 1 << 20)
  for row, document in zip(rows, documents, strict=True):
    counts = {}
    for n in (2, 3, 4, 5):
      for i in range(len(document) - n + 1):
        gram = document[i:i + n]
        counts[gram] = counts.get(gram, 0) + 1
    values = np.log1p(np.sort(list(counts.values())))
    if len(values):
      values = values / np.linalg.norm(values)
    np.testing.assert_allclose(np.sort(row.data), values, rtol=1e-6)
  assert rows[0].multiply(rows[4]).sum() > 0  # both documents contain ab


def text_splits(size):
  """Makes reviews of both classes, which differ in one four-byte word."""
  def review(label):
    words = [b'lorem', b'ipsum', b'dolor', b'amet'] * 4
    words.insert(RNG.integers(16), b'good' if label else b'evil')
    return b' '.join(words)
  labels = RNG.integers(0, 2, size)
  return split_of([review(y) for y in labels], labels)


def test_byte_ngrams_learn_what_is_linear(monkeypatch):
  linear = pytest.importorskip('lra.data_prep.linear')
  monkeypatch.setattr(linear, '_FEATURES', 1 << 10)
  splits = {s: text_splits(60) for s in ('train', 'val', 'test')}
  right, how = linear.byte_ngrams(splits)
  assert right.all() and len(right) == 60
  assert 'logistic regression' in how


def word_splits(size):
  """Makes reviews of words 1 to 299; word 300 decides the class."""
  labels = RNG.integers(0, 2, size)
  words = RNG.integers(1, 300, (size, 20)).astype(np.uint16)
  words[labels == 1, 7] = 300
  return split_of([row.tobytes() for row in words], labels, dtype=np.uint16)


def test_a_bag_of_words_finds_the_word_that_decides():
  linear = pytest.importorskip('lra.data_prep.linear')
  splits = {s: word_splits(200) for s in ('train', 'val', 'test')}
  right, how = linear.bag_of_words(splits)
  assert right.mean() > 0.95 and len(right) == 200
  # The order of the words does not matter.
  tokens = splits['test'].tokens.reshape(200, 20)[:, ::-1]
  splits['test'] = dataclasses.replace(
      splits['test'], tokens=tokens.reshape(-1))
  np.testing.assert_array_equal(linear.bag_of_words(splits)[0], right)


def pair_splits():
  """Makes pairs of documents; a pair is positive if both have one subject."""
  words = [[b'w%d%c' % (s, 97 + i) for i in range(20)] for s in range(6)]
  documents = [b' '.join(RNG.choice(words[s], 12)) + b' rfc memo'
               for s in range(6) for _ in range(20)]
  splits = {}
  for name, size in (('train', 400), ('val', 100), ('test', 100)):
    first = RNG.integers(0, 120, size)
    labels = RNG.integers(0, 2, size)
    subject = np.where(labels, first // 20, (first // 20 + 1) % 6)
    second = subject * 20 + RNG.integers(0, 20, size)
    splits[name] = split_of(documents, labels, np.stack([first, second], 1))
  return splits


def test_tfidf_cosine_finds_common_words():
  linear = pytest.importorskip('lra.data_prep.linear')
  right, how = linear.tfidf_cosine(pair_splits())
  assert right.mean() > 0.97
  assert 'fitted on train' in how


def image_splits(size):
  labels = RNG.integers(0, 10, size)
  images = RNG.integers(0, 256, (size, 16, 16), np.uint8)
  return images_split(images, labels)


@pytest.mark.parametrize('task, make', [
    ('listops', lambda: listops.generate(listops.Variant(
        trees.Process(3, 3, 5, 20), (200, 30, 20))).splits),
    ('text_mini', lambda: {s: text_splits(60) for s in
                           ('train', 'val', 'test')}),
    ('image_mini', lambda: {s: image_splits(60) for s in
                            ('train', 'val', 'test')}),
    ('imdb_words', lambda: {s: word_splits(60) for s in
                            ('train', 'val', 'test')}),
    ('retrieval_rfc', pair_splits)])
def test_record(tmp_path, task, make, monkeypatch):
  linear = pytest.importorskip('lra.data_prep.linear')
  monkeypatch.setattr(linear, '_FEATURES', 1 << 10)
  splits = make()
  content = Content(splits, {'fingerprint': fingerprint(splits),
                             'origin': 'made up'})
  path = baselines.write(baselines.measure(task, content), tmp_path / 'floors')
  record = floors_lib.read(path)
  assert record.fingerprint == fingerprint(splits)
  assert record.origin == 'made up'
  assert len(record.methods) == 2
  for floor in record.methods.values():
    right = bits.unpack(floor.correct, len(splits['test']))
    assert right.mean() == pytest.approx(floor.accuracy)
  assert [p.name for p in path.parent.iterdir()] == [f'{task}.json']
