"""Measures baselines: scores of trivial and linear methods on a data set.

Every method is fitted on train and scored on test, on the same tokens that
models see. Its hyperparameters, if any, are chosen on val. It returns whether
each answer on test is right, bool [N], or the probability of that, float64 [N].
"""

import importlib
import json
import pathlib
import time
from collections.abc import Mapping

import numpy as np

from lra.core import bits, files, paths, tasks
from lra.data_prep import parts
from lra.data_prep.content import Content, Split

# The folder, JSON fields and old flags call baselines "floors".
RECORDS = pathlib.Path(__file__).parents[1] / 'results' / 'floors'


def majority(train: Split, test: Split) -> np.ndarray:
  """Answers with the commonest label of train."""
  return test.labels == np.bincount(train.labels).argmax()


def first_operator(train: Split, test: Split) -> np.ndarray:
  """Answers with `parts.by_first_token`."""
  return parts.by_first_token(train, test) == test.labels


def _quick(task):
  """Returns {name: (function of train and test, description)}."""
  if task.probe:
    from lra.data_prep import probes
    return {
        'majority': (probes.majority,
                     'always answers with the most common class of train'),
        'chance': (probes.chance, 'guesses a class at random'),
        **probes.VARIANTS[task.variant].rules}
  found = {'majority': (
      majority, 'always answers with the most common label of train')}
  if task.dataset == 'listops':
    found[parts.FIRST_OPERATOR] = first_operator, (
        'answers with the most common label of train for the first operator')
  return found


def _slow(task):
  """Returns {name: (file, function of the splits, further arguments)}.

  The function also returns a description.
  """
  if task.dataset in ('text', 'zhang'):
    return {'byte n-grams': ('linear', 'byte_ngrams')}
  if task.dataset == 'words':
    return {'bag of words': ('linear', 'bag_of_words')}
  if task.dataset == 'retrieval':
    return {'TF-IDF cosine': ('linear', 'tfidf_cosine')}
  if task.own and not task.image:
    return {'byte n-grams': ('linear', 'quick_ngrams')} if (
        task.num_classes <= tasks.MOST_CLASSES) else {}
  found = {'ridge on pixels': ('pixels', 'ridge')} if task.image else {}
  if task.dataset == 'pathfinder':
    from lra.data_prep import pathfinder
    found['marker distance'] = 'pixels', 'marker_distance', (
        pathfinder.VARIANTS[task.variant].law.marker_radius)
  return found


def names(task: tasks.Task) -> list[str]:
  """Returns the names of the baselines of a task."""
  return [*_quick(task), *_slow(task)]


def quick(task_name: str, splits: Mapping[str, Split]) -> dict[str, float]:
  """Returns {name: accuracy, a fraction} of the fast baselines."""
  return {name: float(np.mean(method(splits['train'], splits['test'])))
          for name, (method, _) in _quick(tasks.get(task_name)).items()}


def measure(task_name: str, content: Content) -> dict:
  """Scores all baselines of a task; see `lra.data.baselines` for the record."""
  task, splits, found = tasks.get(task_name), content.splits, {}
  for name, (method, how) in _quick(task).items():
    start = time.monotonic()
    found[name] = _score(
        task, splits, start, method(splits['train'], splits['test']), how)
  for name, (file, method, *more) in _slow(task).items():
    if file == 'linear':
      paths.need('sklearn', 'A linear baseline', 'baselines')
    start = time.monotonic()
    library = importlib.import_module(f'lra.data_prep.{file}')
    found[name] = _score(
        task, splits, start, *getattr(library, method)(splits, *more))
  return {'task': task_name, 'fingerprint': content.info['fingerprint'],
          'origin': content.info['origin'], 'floors': found}


def _score(task, splits, start, right, how):
  score = {'accuracy': float(np.mean(right)), 'how': how,
           'seconds': round(time.monotonic() - start, 1)}
  if not task.probe:
    score |= {'examples': len(right), 'correct': bits.pack(right)}
    made_of = parts.accuracies(task.dataset, right, splits['test'])
    score |= {'parts': made_of} if made_of else {}
  return score


def write(record: dict, directory: pathlib.Path = RECORDS) -> pathlib.Path:
  """Writes a record as `<task>.json`; if that fails, leaves the old file."""
  path = directory / f'{record["task"]}.json'
  files.write_all({path: f'{json.dumps(record, indent=1)}\n'.encode()})
  return path
