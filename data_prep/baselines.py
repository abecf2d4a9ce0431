"""Measures baselines: scores of trivial and linear methods on a data set.

Every method is fitted on train and scored on test, on the same bytes that
models see. Its hyperparameters, if any, are chosen on val.
"""

import json
import pathlib
import time
from collections.abc import Callable, Mapping

import numpy as np

from lra.core import bits, files, tasks
from lra.data_prep import kinds, parts
from lra.data_prep.content import Content, Split

# The folder, JSON fields and old flags call baselines "floors".
RECORDS = pathlib.Path(__file__).parents[1] / 'results' / 'floors'


def quick(task_name: str, splits: Mapping[str, Split]) -> dict[str, float]:
  """Returns a dict from each fast baseline's name to its accuracy, a fraction.
  """
  kind = kinds.of(tasks.get(task_name))
  return {name: float(np.mean(method(splits['train'], splits['test'])))
          for name, (method, _) in kind.quick.items()}


def measure(task_name: str, content: Content) -> dict:
  """Scores all baselines of a task.

  Returns:
    A record with task, fingerprint and origin of the data, and `floors`. That
    maps the name of a baseline to its accuracy, `how` and seconds. For tasks
    other than probes it adds `examples`, the size of test, and `correct`, the
    right answers packed by `lra.core.bits`. An example of a probe has many
    answers.

  Raises:
    UserError: the task needs scikit-learn, which is not installed.
  """
  task = tasks.get(task_name)
  kind = kinds.of(task)
  methods = {name: lambda s, method=method, how=how: (
      method(s['train'], s['test']), how)
      for name, (method, how) in kind.quick.items()}
  methods |= {name: lambda s, method=method: method(s, task.variant)
              for name, method in kind.slow.items()}
  return {'task': task_name, 'fingerprint': content.info['fingerprint'],
          'origin': content.info['origin'],
          'floors': {name: _score(method, content.splits, task)
                     for name, method in methods.items()}}


def _score(method: Callable, splits, task):
  start = time.monotonic()
  right, how = method(splits)
  score = {'accuracy': float(np.mean(right)), 'how': how,
           'seconds': round(time.monotonic() - start, 1)}
  if not task.probe:
    score |= {'examples': len(right), 'correct': bits.pack(right)}
    made_of = parts.accuracies(task.dataset, right, splits['test'])
    score |= {'parts': made_of} if made_of else {}
  return score


def write(record: dict, directory: pathlib.Path = RECORDS) -> pathlib.Path:
  """Writes a record as `<task>.json`; if that fails, leaves the old file.

  Raises:
    UserError: the directory cannot be written.
  """
  path = directory / f'{record["task"]}.json'
  files.write_all({path: f'{json.dumps(record, indent=1)}\n'.encode()})
  return path
