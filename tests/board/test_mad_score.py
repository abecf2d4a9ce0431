"""Computes the scores of MAD again, from a table of all its runs."""

import numpy as np
import pytest

from lra.board import mad_score
from lra.core import mad


def _runs(rng):
  """Returns a table with one row for each of the 396 runs of the benchmark."""
  return [(task, name, rate, decay, rng.random())
          for task in mad.BASELINES for name in mad.settings(task)
          for rate in mad.LEARNING_RATES for decay in mad.WEIGHT_DECAYS]


def test_scores_are_means_of_the_best_runs():
  runs = _runs(np.random.default_rng(0))
  assert len(runs) == 396
  accuracies = {}
  for _, name, _, _, accuracy in runs:
    accuracies.setdefault(name, []).append(accuracy)
  best = {}
  for task, name, _, _, accuracy in runs:
    best[task, name] = max(best.get((task, name), 0), accuracy)
  means = []
  for task in mad.BASELINES:
    of = [accuracy for (t, _), accuracy in best.items() if t == task]
    means.append(np.mean(of))
    assert mad_score.of_task(task, accuracies) == pytest.approx(means[-1])
    assert mad_score.of_task(task, accuracies, True) == best[task, task]
  assert mad_score.of_model(accuracies) == pytest.approx(np.mean(means))
  assert mad_score.of_model(accuracies, True) == pytest.approx(
      np.mean([best[task, task] for task in mad.BASELINES]))


def test_there_is_no_score_without_a_setting():
  accuracies = {name: [1.0] for task in mad.BASELINES
                for name in mad.settings(task)}
  assert mad_score.of_model(accuracies) == 1
  del accuracies['mad_copying_k64']
  assert mad_score.of_task('mad_copying', accuracies) is None
  assert mad_score.of_model(accuracies) is None
  assert mad_score.of_model(accuracies, True) == 1
