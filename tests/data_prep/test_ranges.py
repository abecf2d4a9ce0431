"""Reading refuses prepared data with values outside of the task's range."""

import dataclasses

import numpy as np
import pytest

from lra import data_prep
from lra.data_prep import __main__ as command
from lra.data_prep import builder as builder_lib
from lra.data_prep import listops, retrieval
from lra.data_prep.content import SPLITS, Content, split_of

TOKENS = [bytes([10, 8, 3, 14]), bytes([9]), bytes([0])]


def splits_of(task, split, extra, label):
  """Makes splits of valid examples, and another one in `split`."""
  if task == 'listops':
    return dict.fromkeys(SPLITS, split_of(TOKENS, [8, 9, 0])) | {
        split: split_of([*TOKENS, extra], [8, 9, 0, label])}
  pairs = [[0, 1], [1, 2]]
  return dict.fromkeys(SPLITS, split_of(TOKENS, [0, 1], pairs)) | {
      split: split_of(TOKENS, [0, 1, label], [*pairs, extra])}


@pytest.mark.parametrize('task, split, extra, label, what', [
    ('listops', 'train', b'\1', -1, 'label -1'),
    ('listops', 'val', b'\1', 10, 'label 10'),
    ('listops', 'test', b'\1\17', 1, 'token code 15'),
    ('listops', 'train', bytes(range(15)), 9, ''),
    ('retrieval_rfc', 'train', [0, 1], 2, 'label 2'),
    ('retrieval_rfc', 'val', [0, 3], 1, 'document number 3'),
    ('retrieval_rfc', 'test', [-1, 0], 1, 'document number -1'),
    ('retrieval_rfc', 'train', [2, 2], 1, '')])
def test_what_the_task_has_not_is_named(
    monkeypatch, tmp_path, capsys, task, split, extra, label, what):
  splits = splits_of(task, split, extra, label)
  made = listops.Listops if task == 'listops' else retrieval.Retrieval
  with monkeypatch.context() as m:
    m.setattr(made, 'make', lambda self, _: Content(
        splits, {'origin': 'made up'}))
    m.setattr(made, 'identify_source', lambda self: None)
    m.setattr(made, '_downloaded', lambda *_: None)
    m.setattr(builder_lib, 'read', lambda builder: None)
    data_prep.prepare(task, tmp_path)
  capsys.readouterr()
  arguments = [f'--task={task}', f'--data_dir={tmp_path}', '--describe']
  if what:
    assert command.main(arguments) == 2
    said = capsys.readouterr().err
    assert f'{split} has the {what},' in said and said.count('\n') == 1
    return
  found = data_prep.read(task, tmp_path).splits
  for name, each in splits.items():
    for field in dataclasses.fields(each):
      np.testing.assert_array_equal(
          getattr(found[name], field.name), getattr(each, field.name))
