"""Compares scores with scikit-learn; evaluation counts each example once."""

import functools

import numpy as np
import pytest

from lra.core import bits
from lra.data.prepared import Split
from lra.objectives import classification
from tests.helpers import small


@pytest.mark.parametrize('classes', [2, 10])
def test_scores_equal_scikit_learn(classes):
  metrics = pytest.importorskip('sklearn.metrics')
  rng = np.random.default_rng(0)
  true, predicted = rng.integers(0, classes - 1, (2, 500))
  confusion = metrics.confusion_matrix(
      true, predicted, labels=np.arange(classes))
  got = classification.scores(confusion, 250.0)
  p, r, f, _ = metrics.precision_recall_fscore_support(
      true, predicted, labels=np.arange(classes), average='macro',
      zero_division=0)
  assert got['accuracy'] == pytest.approx(
      metrics.accuracy_score(true, predicted))
  assert (got['precision'], got['recall'], got['f1']) == pytest.approx(
      (p, r, f))
  assert got['loss'] == 0.5


@pytest.mark.full
@pytest.mark.parametrize('task', ['listops', 'retrieval_rfc'])
def test_batch_size_does_not_change_scores(task):
  rng = np.random.default_rng(1)
  results, predicted = [], []
  n, dual = 37, task != 'listops'
  lengths = rng.integers(1, 30, n)
  offsets = np.concatenate([[0], np.cumsum(lengths)])
  split = Split(
      rng.integers(0, 15, offsets[-1]).astype(np.uint8), offsets,
      rng.integers(0, 2, n).astype(np.int32),
      rng.integers(0, n, (n, 2)).astype(np.int32) if dual else None)
  for batch_size in (5, 64):
    c = small.config('transformer', task, eval_batch_size=batch_size)
    p = small.make(c)
    state = p.init()
    scored = {'params': state.params, 'constants': state.constants}
    run = functools.partial(p.evaluate, p.compile_eval(), scored, split)
    counts = run()
    assert run(lambda counted: False) is None  # stopped after one batch
    results.append(p.objective.scores(counts))
    predicted.append(p.objective.analysis(
        counts, p.order(split), split, split))
  assert predicted[0] == predicted[1]
  for other in results[1:]:
    assert other['confusion'] == results[0]['confusion']
    assert other['loss'] == pytest.approx(results[0]['loss'], rel=1e-5)
  confusion = np.array(results[0]['confusion'])
  np.testing.assert_array_equal(
      confusion.sum(axis=1)[:2], np.bincount(split.labels, minlength=2))


def test_an_analysis_has_the_examples_in_the_order_of_the_data():
  """Analyses keep the order of the data, without the last batch's filling."""
  codes = np.array([10, 1, 14, 11, 2, 14, 12, 3, 14], np.uint8)
  split = Split(codes, np.arange(0, 10, 3), np.array([1, 2, 3], np.int32))
  objective = small.make(small.config('transformer', 'listops')).objective
  counts = [(None, None, np.array(batch)) for batch in ((4, 1), (2, 2))]
  found = objective.analysis(counts, np.array([2, 0, 1]), split, split)
  assert bits.unpack(found['correct'], 3).tolist() == [True, True, False]
  roots = found['parts']['root operator']
  assert {name: part['accuracy'] for name, part in roots.items()} == {
      'MIN': 1, 'MAX': 1, 'MED': 0}
