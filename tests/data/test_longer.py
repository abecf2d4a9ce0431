"""Generates longer sequences, and solves them again in plain Python."""

import numpy as np
import pytest

from data_prep import listops, parts
from lra import tasks
from lra.data import longer
from lra.errors import UserError

TESTED = [(task.name, name) for task in tasks.TASKS.values()
          for name in task.longer]


@pytest.mark.parametrize('text, shortest, longest', [
    ('64', 64, 64), (' 40-256', 40, 256), ('7-7', 7, 7)])
def test_lengths_are_read_as_they_are_written(text, shortest, longest):
  found = longer.parse(text)
  assert (found.shortest, found.longest) == (shortest, longest)
  assert longer.parse(str(found)) == found


@pytest.mark.parametrize('text', [
    '', '0', '-3', '64-40', '1e3', '4 0', '64,128', '٣', '9' * 12, '2000000'])
def test_no_length_is_one_sentence(text):
  with pytest.raises(UserError):
    longer.parse(text)


@pytest.mark.parametrize('task, name', TESTED)
def test_sequences_have_the_lengths_that_were_asked_for(task, name):
  asked = longer.parse(name)
  split = longer.split(task, asked)
  lengths = np.diff(split.offsets)
  assert asked.shortest <= lengths.min() and lengths.max() <= asked.longest
  again = longer.split(task, asked)
  assert np.array_equal(split.tokens, again.tokens)
  assert lengths.max() > tasks.get(task).seq_len
  if asked.shortest < asked.longest:
    assert len(np.unique(lengths)) > 20


def test_longer_parity_is_asked_at_the_last_token_only():
  split = longer.split('parity', longer.parse('40-64'))
  for sequence, answers in split.pairs[:100]:
    tokens, asked = (list(split.document(i)) for i in (sequence, answers))
    assert asked == [0] * (len(tokens) - 1) + [1 + sum(tokens) % 2]


def test_longer_expressions_have_their_values():
  split = longer.split('listops_mini', longer.parse('65-128'))
  assert [listops.evaluate(split.document(i)) for i in range(100)] == (
      split.labels[:100].tolist())
  # Expressions of these lengths are rare at the depth of training, so they are
  # one level deeper.
  usual = listops.VARIANTS['mini'].process.max_depth
  assert parts.depths(split).max() == usual + 1


def test_only_generated_tasks_have_longer_sequences():
  with pytest.raises(UserError):
    longer.split('text', longer.parse('5000'))
  with pytest.raises(UserError):
    longer.split('listops_mini', longer.parse('5000'))
