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
from lra.data_prep.content import Content, split_of

TOKENS = [bytes([10, 8, 3, 14]), bytes([9]), bytes([0])]


def expressions(split, tokens=(), labels=()):
  """Makes splits of three expressions, with extra ones in `split`."""
  usual = {name: split_of(TOKENS, [8, 9, 0])
           for name in ('train', 'val', 'test')}
  usual[split] = split_of([*TOKENS, *tokens], [8, 9, 0, *labels])
  return usual


def numbered(split, pairs=(), labels=()):
  """Makes splits of two document pairs, with extra pairs in `split`."""
  usual = {name: split_of(TOKENS, [0, 1], [[0, 1], [1, 2]])
           for name in ('train', 'val', 'test')}
  usual[split] = split_of(
      TOKENS, [0, 1, *labels], [[0, 1], [1, 2], *pairs])
  return usual


def stored(monkeypatch, task, data_dir, splits):
  """Stores `splits` as a prepared data set with its correct fingerprint."""
  module = {'listops': listops, 'retrieval_rfc': retrieval}[task]
  with monkeypatch.context() as m:
    m.setattr(module.BUILDER, 'make', lambda self, _: Content(
        splits, {'origin': 'made up'}))
    m.setattr(module.BUILDER, 'identify_source', lambda self: None)
    m.setattr(builder_lib, 'read', lambda builder: None)
    data_prep.prepare(task, data_dir)


CASES = [
    ('listops', expressions('train', [b'\1'], [-1]), 'label -1'),
    ('listops', expressions('val', [b'\1'], [10]), 'label 10'),
    ('listops', expressions('test', [b'\1'], [99]), 'label 99'),
    ('listops', expressions('train', [b'\1'], [2**31 - 1]),
     'label 2147483647'),
    ('listops', expressions('train', [b'\1'], [-2**31]),
     'label -2147483648'),
    ('listops', expressions('test', [b'\1\17'], [1]), 'token code 15'),
    ('listops', expressions('train', [b'\xff'], [1]), 'token code 255'),
    ('retrieval_rfc', numbered('train', [[0, 1]], [2]), 'label 2'),
    ('retrieval_rfc', numbered('val', [[0, 3]], [1]), 'document number 3'),
    ('retrieval_rfc', numbered('test', [[-1, 0]], [1]), 'document number -1'),
]


@pytest.mark.parametrize('task, splits, what', CASES)
def test_what_the_task_has_not_is_named(monkeypatch, tmp_path, task, splits,
                                        what):
  split = next(name for name in splits if len(splits[name]) != min(
      map(len, splits.values())))
  stored(monkeypatch, task, tmp_path, splits)
  with pytest.raises(UserError) as caught:
    data_prep.read(task, tmp_path)
  said = str(caught.value)
  assert f'-{split}.array_record-00000-of-00001 has the {what},' in said
  assert '\n' not in said


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


def test_the_command_says_one_sentence(monkeypatch, tmp_path, capsys):
  stored(monkeypatch, 'listops', tmp_path, expressions(
      'train', [b'\1'], [99]))
  capsys.readouterr()
  assert command.main(['--task=listops', f'--data_dir={tmp_path}',
                       '--describe']) == 2
  said = capsys.readouterr().err
  assert said.count('\n') == 1 and 'label 99' in said
