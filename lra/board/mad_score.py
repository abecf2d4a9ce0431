"""Scores of MAD, computed from the accuracies of runs.

Source: Poli et al. 2024, arXiv 2403.17844, section 3.2, and the function
`compute_model_mad_scores` of the released code
(github.com/athms/mad-lab, commit 0f49a45, `mad/analysis.py`).
"""

from collections.abc import Mapping, Sequence

from lra.core import mad


def of_task(task: str, accuracies: Mapping[str, Sequence[float]],
            baseline_only: bool = False) -> float | None:
  """Returns the mean of the best test accuracies in all settings of a task.

  Args:
    task: a name of `lra.core.mad.BASELINES`.
    accuracies: name of a setting -> test accuracy of each of its runs. If one
      has no run, the result is None.
    baseline_only: whether to count only the baseline setting, as many papers
      do.
  """
  names = [task] if baseline_only else list(mad.settings(task))
  if not all(accuracies.get(name) for name in names):
    return None
  return sum(max(accuracies[name]) for name in names) / len(names)


def of_model(accuracies: Mapping[str, Sequence[float]],
             baseline_only: bool = False) -> float | None:
  """Returns the mean score of the six tasks; None if a task has none."""
  scores = [of_task(task, accuracies, baseline_only) for task in mad.BASELINES]
  return None if None in scores else sum(scores) / len(scores)
