"""Tests token classification: loss and scores in numpy, and a whole run."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.data_prep.content import Split
from lra.objectives import classification, token_classification
from tests.helpers import small


def _split():
  """Makes two examples of 4 tokens, of which three have a class.

  Their classes are (none, 2, none, none) and (none, none, 0, 1).
  """
  codes = [[3, 0, 5, 1], [0, 3, 0, 0], [2, 2, 1, 0], [0, 0, 1, 2]]
  return Split(np.array(codes, np.uint8).reshape(-1), np.arange(0, 17, 4),
               np.zeros(2, np.int32), np.array([[0, 1], [2, 3]], np.int32))


@pytest.fixture
def objective():
  c = small.config('transformer', 'parity')
  c.seq_len = 4
  return token_classification.Objective(c, small.tasks.get('parity'), 4)


def test_a_batch_says_what_is_asked_where(objective):
  batch = objective.batch(_split(), np.array([1, 0]), seed=0, step=0)
  assert batch['tokens'].tolist() == [[3, 3, 2, 1], [4, 1, 6, 2]]
  assert batch['weights'].tolist() == [[0, 0, 1, 1], [0, 1, 0, 0]]
  asked = batch['labels'][batch['weights'] > 0]
  assert asked.tolist() == [0, 1, 2]


def test_loss_and_scores_count_what_is_asked_and_nothing_else(objective):
  batch = objective.batch(_split(), np.array([0, 1]), seed=0, step=0)
  batch['labels'] = batch['labels'] % 2  # two classes
  logits = np.random.default_rng(0).standard_normal((2, 4, 2))
  at = batch['weights'] > 0
  asked, labels = logits[at], batch['labels'][at]
  losses = np.log(np.exp(asked).sum(1)) - asked[np.arange(3), labels]
  right = (asked.argmax(1) == labels).sum()
  sums = objective.loss(logits.astype(np.float32), batch)
  assert (sums['weight'], sums['correct']) == (3, right)
  assert float(sums['loss']) == pytest.approx(losses.sum(), rel=1e-5)
  scores = objective.scores([
      objective.count(logits.astype(np.float32), batch)])
  assert np.sum(scores['confusion']) == 3
  assert scores['accuracy'] == pytest.approx(right / 3)


def test_scores_of_many_classes_are_those_of_the_confusion():
  rng = np.random.default_rng(0)
  batch = {'labels': rng.integers(0, 5, (6, 7)),
           'weights': (rng.random((6, 7)) < 0.6).astype(np.float32)}
  logits = rng.standard_normal((6, 7, 5)).astype(np.float32)
  want = classification.scores(
      np.asarray(classification.confusion(logits, batch, 5)), 3.0)
  got = classification.tally_scores(
      np.asarray(classification.tally(logits, batch, 5)), 3.0)
  assert got.pop('counted') == np.sum(want.pop('confusion')) == (
      batch['weights'].sum())
  assert got == want


def test_a_task_of_many_classes_has_no_confusion():
  task = small.tasks.get('mad_memorization')
  c = small.config('transformer', 'mad_memorization')
  made = token_classification.Objective(c, task, 32)
  rng = np.random.default_rng(0)
  batch = {'labels': rng.integers(0, 256, (2, 32)),
           'weights': np.ones((2, 32), np.float32)}
  logits = rng.standard_normal((2, 32, 256)).astype(np.float32)
  scores = made.scores(2 * [made.count(logits, batch)])
  assert 'confusion' not in scores and scores['counted'] == 128
  right = np.mean(logits.argmax(-1) == batch['labels'])
  assert scores['accuracy'] == pytest.approx(right)


@pytest.mark.parametrize('task, changes, word', [
    ('parity', {'objective': 'classification'}, 'token_classification'),
    ('listops', {'objective': 'token_classification'}, 'classification'),
    ('parity', {'pooling': 'cls'}, 'mean')])
def test_what_does_not_fit_is_one_sentence(task, changes, word):
  c = small.config('transformer', task)
  c.objective = changes.get('objective', c.objective)
  c.encoder.pooling = changes.get('pooling', c.encoder.pooling)
  with pytest.raises(UserError, match=f'choose {word}'):
    small.make(c)
