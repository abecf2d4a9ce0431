"""Generates longer sequences, and solves them again in plain Python."""

import re

import numpy as np
import pytest

from lra.core import tasks
from lra.core.errors import UserError
from lra.data import longer
from lra.data_prep import listops, parts

TESTED = [(task.name, name) for task in tasks.TASKS.values()
          for name in task.longer]


@pytest.mark.parametrize('text', [
    '', '0', '64-40', '1e3', '٣', '2000000', '64/4'])
def test_no_length_is_one_sentence(text):
  with pytest.raises(UserError):
    longer.split('parity', text)


@pytest.mark.parametrize('task, name', TESTED)
def test_sequences_have_the_lengths_that_were_asked_for(task, name):
  split = longer.split(task, name)
  lengths = np.diff(split.offsets)
  again = longer.split(task, name)
  assert np.array_equal(split.tokens, again.tokens)
  shortest, *longest = map(int, re.split('[-/]', name))
  if '-' in name:
    assert shortest <= lengths.min() and lengths.max() <= longest[0]
    assert len(np.unique(lengths)) > 20
  else:
    assert set(lengths) == {shortest}


def test_longer_parity_is_asked_at_the_last_token_only():
  split = longer.split('parity', '40-64')
  for sequence, answers in split.pairs[:100]:
    tokens, asked = (list(split.document(i)) for i in (sequence, answers))
    assert asked == [0] * (len(tokens) - 1) + [1 + sum(tokens) % 2]


def test_longer_expressions_have_their_values():
  split = longer.split('listops_mini', '65-128')
  assert [listops.evaluate(split.document(i)) for i in range(100)] == (
      split.labels[:100].tolist())
  # Expressions of these lengths are rare at the depth of training, so they are
  # one level deeper.
  usual = listops.VARIANTS['mini'].process.max_depth
  assert parts.depths(split).max() == usual + 1


def test_only_generated_tasks_have_longer_sequences():
  with pytest.raises(UserError):
    longer.split('text', '5000')
  with pytest.raises(UserError):
    longer.split('listops_mini', '5000')
