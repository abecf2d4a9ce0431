"""Floors: what trivial and linear methods score on a prepared data set.

Everything is fitted on train, settled on val where there is something to
settle, and scored on test, on the same bytes that models see.
"""

import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping

import numpy as np

from data_prep import parts
from data_prep.content import Content, Split
from lra import tasks
from lra.errors import UserError

RECORDS = pathlib.Path(__file__).parent.parent / 'lra' / 'results' / 'floors'


def majority_floor(train: Split, test: Split) -> float:
  """Accuracy on `test` of the commonest label of `train`."""
  return float(np.mean(test.labels == np.bincount(train.labels).argmax()))


def first_operator_floor(train: Split, test: Split) -> float:
  """Accuracy on `test` of guessing from an expression's first token alone."""
  return float(np.mean(parts.by_first_token(train, test) == test.labels))


def quick(task_name: str, splits: Mapping[str, Split]) -> dict[str, float]:
  """The floors that cost no time: name -> accuracy, a fraction."""
  return {name: floor(splits['train'], splits['test'])
          for name, floor in _quick(tasks.get(task_name)).items()}


def _quick(task):
  floors = {'majority': majority_floor}
  if task.dataset == 'listops':
    floors[parts.FIRST_OPERATOR] = first_operator_floor
  return floors


_HOW = {
    'majority': 'the commonest label of train',
    parts.FIRST_OPERATOR: 'the commonest label of train for each first '
                          'operator',
}


def measure(task_name: str, content: Content) -> dict:
  """The floors record of a task.

  Returns:
    task, fingerprint, and floors: name -> accuracy, how, seconds.

  Raises:
    UserError: scikit-learn is not installed, where the task needs it.
  """
  task = tasks.get(task_name)
  floors = {}
  for name, floor in _quick(task).items():
    floors[name] = _timed(
        lambda s, floor=floor, name=name: (
            floor(s['train'], s['test']), _HOW[name]), content)
  if task.dataset != 'listops':
    linear = _import_linear()
    if task.dual:
      floors['TF-IDF cosine'] = _timed(linear.tfidf_cosine, content)
    else:
      floors['byte n-grams'] = _timed(linear.byte_ngrams, content)
  return {'task': task_name, 'fingerprint': content.info['fingerprint'],
          'floors': floors}


def _timed(floor: Callable, content):
  start = time.monotonic()
  accuracy, how = floor(content.splits)
  return {'accuracy': accuracy, 'how': how,
          'seconds': round(time.monotonic() - start, 1)}


def _import_linear():
  try:
    from data_prep import linear
  except ImportError as e:
    raise UserError("The linear floors need scikit-learn: run pip install "
                    "-e '.[floors]'.") from e
  return linear


def write(record: dict, directory: pathlib.Path = RECORDS) -> pathlib.Path:
  """Writes a record as `<task>.json`, all or nothing.

  Raises:
    UserError: the directory cannot be written.
  """
  path = directory / f'{record["task"]}.json'
  new = path.with_suffix('.new')
  try:
    directory.mkdir(parents=True, exist_ok=True)
    new.write_text(json.dumps(record, indent=1) + '\n', encoding='utf-8')
    os.replace(new, path)
  except OSError as e:
    raise UserError(f'Cannot write {path} ({e.strerror}): choose another '
                    '--floors_dir.') from e
  return path
