"""Tests of prepared data sets as they are loaded into memory."""

import dataclasses
import pathlib

import numpy as np
import pytest

from lra.core import tasks
from lra.data import batches, prepared
from lra.data_prep import listops, retrieval
from lra.data_prep.content import Content, fingerprint, split_of

FIXTURES = pathlib.Path(__file__).parents[1] / 'fixtures'


def equal(a, b):
  return all(np.array_equal(getattr(a, f.name), getattr(b, f.name))
             for f in dataclasses.fields(a))


def test_loads_what_was_made(mini_data):
  content = listops.generate(listops.VARIANTS['mini'])
  loaded = prepared.load('listops_mini', mini_data)
  assert [len(loaded.splits[s]) for s in ('train', 'val', 'test')] == [
      28_000, 1000, 1000]
  for name, split in content.splits.items():
    assert equal(loaded.splits[name], split)
    assert loaded.splits[name].tokens.dtype == np.uint8
    assert loaded.splits[name].offsets.dtype == np.int64
    assert loaded.splits[name].labels.dtype == np.int32
  # Another value means other data, so that old scores are not comparable.
  assert loaded.fingerprint == fingerprint(content.splits) == (
      '8e6b4536ba4451b2234252452f4e780fe7a594c345ddb3cb7492ee3ef4e229e9')


def test_pairs_share_their_documents(tmp_path):
  loaded = prepared.load('retrieval', tmp_path, FIXTURES / 'aan')
  content = retrieval.read_aan({
      split: FIXTURES / 'aan' / name
      for split, name in retrieval.aan.FILES.items()})
  for name, split in content.splits.items():
    assert equal(loaded.splits[name], split)
    assert loaded.splits[name].tokens is loaded.splits['train'].tokens
    assert loaded.splits[name].pairs.dtype == np.int32


SPLITS = {
    'train': split_of([b'abc', b'', b'de'], [0, 1, 0]),
    'val': split_of([b'f'], [1]),
    'test': split_of([b'gh'], [0]),
}
PAIRS = {name: split_of([b'abc', b'', b'de'], [0, 1], [(0, i), (i, 2)])
         for i, name in enumerate(SPLITS)}


def of(splits):
  return Content(splits, {})


def test_a_pair_is_as_long_as_its_longer_document():
  documents = [b'a', b'bcd', b'ef']
  assert prepared.lengths(split_of(documents, [0, 1, 0])).tolist() == [1, 3, 2]
  pairs = split_of(documents, [0, 1], [[0, 1], [2, 0]])
  assert prepared.lengths(pairs).tolist() == [3, 2]


def test_fold_val_into_train():
  folded = prepared.fold_val_into_train(of(SPLITS)).splits
  assert [folded['train'].document(i) for i in range(4)] == [
      b'abc', b'', b'de', b'f']
  assert folded['train'].labels.tolist() == [0, 1, 0, 1]
  assert len(folded['val']) == 0
  assert folded['test'] is SPLITS['test']
  assert not list(batches.eval_batches(
      lambda *_: None, np.arange(len(folded['val'])), batch_size=2))


def test_fold_val_into_train_of_pairs():
  folded = prepared.fold_val_into_train(of(PAIRS)).splits
  assert folded['train'].pairs.tolist() == [[0, 0], [0, 2], [0, 1], [1, 2]]
  assert folded['train'].labels.tolist() == [0, 1, 0, 1]
  assert len(folded['val']) == 0 and folded['val'].pairs.shape == (0, 2)


@pytest.mark.parametrize('whole, changed', [
    (SPLITS, {'train': split_of([b'abd', b'', b'de'], [0, 1, 0])}),
    (SPLITS, {'train': split_of([b'ab', b'c', b'de'], [0, 1, 0])}),
    (SPLITS, {'train': split_of([b'de', b'', b'abc'], [0, 1, 0])}),
    (SPLITS, {'test': split_of([b'gh'], [1])}),
    (SPLITS, {'val': SPLITS['test'], 'test': SPLITS['val']}),
    (PAIRS, {'val': dataclasses.replace(
        PAIRS['val'], pairs=PAIRS['val'].pairs[:, ::-1])})])
def test_fingerprint_covers_all_values(whole, changed):
  assert fingerprint({**whole, **changed}) != fingerprint(whole)


def test_fingerprint_is_of_values_not_of_types():
  wide = {k: dataclasses.replace(s, labels=s.labels.astype('>i8'),
                                 offsets=s.offsets.astype(np.uint32))
          for k, s in SPLITS.items()}
  assert fingerprint(wide) == fingerprint(SPLITS)


def test_every_task_has_a_data_set():
  from lra import data_prep
  from lra.data_prep import probes
  for task in tasks.TASKS.values():
    if task.probe:
      assert task.variant in probes.VARIANTS
      continue
    builder = data_prep.make_builder(task.name, '/nowhere')
    assert builder.task == task
    assert builder.DUAL == task.dual
