"""Reading refuses prepared data with tokens or labels outside the task's range.
"""

import dataclasses

import numpy as np
import pytest

from lra import data_prep
from lra.core.errors import UserError
from lra.data_prep import __main__ as command
from lra.data_prep import builder as builder_lib
from lra.data_prep import listops, retrieval
from lra.data_prep.content import SPLITS, Content, split_of

TOKENS = [bytes([10, 8, 3, 14]), bytes([9]), bytes([0])]


def expressions(split, tokens=(), labels=()):
  """Makes splits of three expressions, with extra ones in `split`."""
  return dict.fromkeys(SPLITS, split_of(TOKENS, [8, 9, 0])) | {
      split: split_of([*TOKENS, *tokens], [8, 9, 0, *labels])}


def numbered(split, pairs=(), labels=()):
  """Makes splits of two document pairs, with extra pairs in `split`."""
  return dict.fromkeys(SPLITS, split_of(TOKENS, [0, 1], [[0, 1], [1, 2]])) | {
      split: split_of(TOKENS, [0, 1, *labels], [[0, 1], [1, 2], *pairs])}


def stored(monkeypatch, task, data_dir, splits):
  """Stores `splits` as a prepared data set with its correct fingerprint."""
  made = {'listops': listops.Listops,
          'retrieval_rfc': retrieval.Retrieval}[task]
  with monkeypatch.context() as m:
    m.setattr(made, 'make', lambda self, _: Content(
        splits, {'origin': 'made up'}))
    m.setattr(made, 'identify_source', lambda self: None)
    m.setattr(made, '_downloaded', lambda *_: None)
    m.setattr(builder_lib, 'read', lambda builder: None)
    data_prep.prepare(task, data_dir)


@pytest.mark.parametrize('task, make, split, extra, label, what', [
    *(('listops', expressions, split, b'\1', label, f'label {label}')
      for split, label in (('train', -1), ('val', 10), ('test', 99),
                           ('train', 2**31 - 1), ('train', -2**31))),
    ('listops', expressions, 'test', b'\1\17', 1, 'token code 15'),
    ('listops', expressions, 'train', b'\xff', 1, 'token code 255'),
    ('retrieval_rfc', numbered, 'train', [0, 1], 2, 'label 2'),
    ('retrieval_rfc', numbered, 'val', [0, 3], 1, 'document number 3'),
    ('retrieval_rfc', numbered, 'test', [-1, 0], 1, 'document number -1')])
def test_what_the_task_has_not_is_named(
    monkeypatch, tmp_path, capsys, task, make, split, extra, label, what):
  stored(monkeypatch, task, tmp_path, make(split, [extra], [label]))
  capsys.readouterr()
  assert command.main([f'--task={task}', f'--data_dir={tmp_path}',
                       '--describe']) == 2
  said = capsys.readouterr().err
  assert f'-{split}.array_record-00000-of-00001 has the {what},' in said
  assert said.count('\n') == 1


@pytest.mark.parametrize('task, splits', [
    ('listops', expressions('train', [bytes(range(15))], [9])),
    ('retrieval_rfc', numbered('train', [[2, 2]], [1]))])
def test_the_last_values_of_the_task_are_read(monkeypatch, tmp_path, task,
                                              splits):
  stored(monkeypatch, task, tmp_path, splits)
  found = data_prep.read(task, tmp_path).splits
  for name, split in splits.items():
    for field in dataclasses.fields(split):
      np.testing.assert_array_equal(
          getattr(found[name], field.name), getattr(split, field.name))


def test_labels_beyond_32_bits_are_refused(monkeypatch, tmp_path):
  """`Split` holds int32 labels, so only a file made elsewhere can have them."""
  splits = expressions('train')
  large = dataclasses.replace(
      splits['val'], labels=np.array([8, 2**40, 0]))
  monkeypatch.setattr(builder_lib, 'fingerprint', lambda splits: 'any')
  stored(monkeypatch, 'listops', tmp_path, {**splits, 'val': large})
  with pytest.raises(UserError, match=f'has the label {2**40},'):
    data_prep.read('listops', tmp_path)
