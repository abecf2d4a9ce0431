"""Tests of ListOps: evaluator, generated data set, official tables."""

import pathlib
import shutil

import numpy as np
import pytest

from lra.core import tasks
from lra.data_prep import listops, trees
from lra.data_prep.content import fingerprint
from lra.data_prep.source import Source
from tests.helpers.data_files import refused

OFFICIAL = pathlib.Path(__file__).parent.parent / 'fixtures' / 'listops'

PINNED = (
    'f86cfab1ad1671f48cbaa6d4180205c9b8c783f4d8896ff85c3f00e522c741e1')
SMALL = listops.Variant(trees.Process(3, 3, 5, 20), (200, 30, 20))


@pytest.mark.parametrize('expression, value', [
    ('7', 7),
    ('[MIN 4 2 9 ]', 2),
    ('[MAX 4 2 9 ]', 9),
    ('[MED 4 2 9 ]', 4),
    ('[MED 4 1 ]', 2),  # the median 2.5 is rounded down
    ('[MED 9 8 7 6 ]', 7),  # from the median 7.5
    ('[SM 4 2 9 ]', 5),
    ('[SM 5 5 ]', 0),
    ('[MAX 2 [MIN [SM 9 9 ] 9 ] [MED 1 2 3 ] 0 ]', 8),
    ('( ( ( [MAX 2 ) 9 ) ] )', 9),
])
def test_evaluate(expression, value):
  assert listops.evaluate(listops.encode(expression)) == value


@pytest.mark.parametrize('expression', [
    '', '1 2', '[MIN 1 2', '[MIN ]', ']', '[MIN 1 ] ]', '[SM [MAX ] 1 ]'])
def test_evaluate_refuses_what_is_not_an_expression(expression):
  with pytest.raises(ValueError):
    listops.evaluate(listops.encode(expression))


def test_encode_has_fifteen_tokens_and_keeps_brackets():
  text = '[SM 0 1 2 3 4 [MIN 5 6 ] 7 [MAX 8 9 ] [MED 1 ] ]'
  assert listops.decode(listops.encode(text)) == text
  assert set(listops.encode(text)) == set(range(15))
  with pytest.raises(ValueError, match="'MIN'"):
    listops.encode('MIN 1 2 ]')


def test_generated_splits_share_no_expression():
  content = listops.generate(SMALL)
  documents = [s.document(i) for s in content.splits.values()
               for i in range(len(s))]
  assert [len(s) for s in content.splits.values()] == [200, 30, 20]
  assert len(set(documents)) == 250
  assert content.info['duplicates_dropped'] > 0  # duplicates did occur
  for split in content.splits.values():
    for i, label in enumerate(split.labels):
      assert listops.evaluate(split.document(i)) == label


def test_no_expression_is_drawn_twice_however_many_chunks_it_takes(
    monkeypatch):
  """Draws 250 of the 400 expressions of one operator and two digits."""
  monkeypatch.setattr(listops, '_DRAWS_PER_CHUNK', 500)
  documents, values, facts = listops.draw(trees.Process(2, 2, 3, 8), 250)
  assert len(set(documents)) == len(documents) == len(values) == 250
  assert facts['draws'] > 2 * 500 and facts['duplicates_dropped'] > 0
  assert [listops.evaluate(d) for d in documents] == values


def test_same_content_everywhere():
  """The pinned fingerprint shows that every machine generates the same data."""
  assert fingerprint(listops.generate(SMALL).splits) == PINNED


def test_imports_the_official_tables():
  content = listops.import_official(Source(OFFICIAL))
  train = content.splits['train']
  assert listops.decode(train.document(0)) == '[MAX 2 9 [MIN 4 7 ] 0 ]'
  assert train.labels.tolist() == [9, 5, 4]
  assert {k: len(s) for k, s in content.splits.items()} == {
      'train': 3, 'val': 1, 'test': 2}


@pytest.mark.parametrize('table, reason', [
    *((f'Source\tTarget\n[MIN 1 2 ]\t1\n{row}\n', f'line 3: {reason}')
      for row, reason in (
          (f'[MAX {1999 * "1 "}]\t1',
           '2,001 tokens, of which the task keeps 2,000'),
          ('[MAX 1 2 ]\t1',
           'the target is 1, but the expression evaluates to 2'),
          ('[MAX 1 2 ]\ttwo', 'the target is two'),
          ('[MAX 1 2 ]', '1 columns instead of 2'),
          ('[MAX 1 2 ]\t2\t2', '3 columns instead of 2'),
          ('[TOP 1 2 ]\t2', "unknown token '[TOP'"),
          ('[MAX 1 2\t2', 'not one complete expression'),
          ('\t2', 'not one complete expression'))),
    ('[MIN 1 2 ]\t1\n', 'line 1: the header'),
    ('Source\tTarget\n', 'line 1: no expressions'),
    ('', 'line 1: no expressions'),
    (None, 'has no basic_val.tsv: --source of listops must be a directory')])
def test_bad_table(tmp_path, capsys, table, reason):
  path = tmp_path / 'source' / 'basic_val.tsv'
  shutil.copytree(OFFICIAL, path.parent)
  if table is None:
    path.unlink()
  else:
    path.write_text(table)
    reason = f'{path}, {reason}'
  assert reason in refused(capsys, 'listops', path.parent, tmp_path / 'data')


def test_mini_is_within_its_task():
  process = listops.VARIANTS['mini'].process
  assert process.max_length - 1 == tasks.get('listops_mini').seq_len
  drawn = trees.draw(process, 0, 20_000)
  assert np.diff(drawn.offsets).max() <= tasks.get('listops_mini').seq_len
