"""What a result record and a floors record must hold.

A result record is the `result.json` of one run; a floors record holds the
accuracies that trivial or linear methods reach on one prepared data set.
Accuracies are fractions in [0, 1].
"""

import json
import math
import pathlib

from lra import tasks
from lra.errors import UserError

STATUSES = ('ok', 'diverged', 'oom', 'stopped')
FINISHED = ('ok', 'diverged')

_TEXTS = ('task', 'model', 'protocol', 'device', 'dtype', 'data_fingerprint')
_OPTIONAL_TEXTS = ('kernel', 'git_commit')
_COUNTS = ('num_params', 'mixer_params')
_OPTIONAL_COUNTS = ('best_step', 'peak_memory_bytes')
_OPTIONAL_NUMBERS = ('steps_per_s', 'tokens_per_s', 'train_seconds',
                     'eval_seconds', 'compile_seconds')


class _RecordError(ValueError):
  """What is wrong with a record, without the name of its file."""


def validate(record: object) -> None:
  """Checks a result record.

  Every field of the format must be there. Only these may be null: `val`
  (without a validation split), `best_step`, the times and rates,
  `peak_memory_bytes`, `kernel`, `git_commit`, `git_dirty`, and, where status
  is not `ok`, also `test` and the parameter counts.

  Raises:
    UserError: a field is missing, of the wrong type or out of range, or the
      confusion matrix does not agree with the accuracy.
  """
  try:
    _check_run(record)
  except _RecordError as error:
    raise UserError(
        f'The result record is not sound ({error}): write it again.'
    ) from error


def read_run(path: pathlib.Path) -> dict:
  """Returns the result record in `path`; raises UserError naming the file."""
  return _read(path, _check_run, 'result')


def read_floors(path: pathlib.Path) -> dict:
  """Returns the floors record in `path`; raises UserError naming the file."""
  record = _read(path, _check_floors, 'floors')
  if record['task'] != path.stem:
    raise UserError(
        f'{path} holds the floors of {record["task"]!r}: rename it to '
        f'{record["task"]}.json or make it again.')
  return record


def _read(path, check, kind):
  try:
    record = json.loads(path.read_text(encoding='utf-8'),
                        parse_constant=_no_constant)
    check(record)
  except (OSError, ValueError) as error:
    reason = str(error).replace('\n', ' ')
    raise UserError(
        f'{path} is not a sound {kind} record ({reason}): restore it, make it '
        'again or delete it, then repeat the command.') from error
  return record


def _no_constant(text):
  raise _RecordError(f'it holds {text}, which is no JSON number')


def _check_run(record):
  if not isinstance(record, dict):
    raise _RecordError('it is not a JSON object')
  ok = _get(record, 'status') == 'ok'
  if record['status'] not in STATUSES:
    raise _RecordError(f"field 'status' is {record['status']!r}, not one of "
                       f'{", ".join(STATUSES)}')
  for name in _TEXTS:
    _text(record, name)
  for name in _OPTIONAL_TEXTS:
    _text(record, name, optional=True)
  for name in ('seed', 'steps'):
    _count(record, name)
  for name in _COUNTS:
    _count(record, name, optional=not ok)
  for name in _OPTIONAL_COUNTS:
    _count(record, name, optional=True)
  for name in _OPTIONAL_NUMBERS:
    _number(record, name, optional=True)
  if _get(record, 'git_dirty') not in (True, False, None):
    raise _RecordError("field 'git_dirty' is not a boolean")
  _check_params(record)
  _check_scores(record, 'val', optional=True)
  _check_scores(record, 'test', optional=not ok)
  for name in _object(record, 'floors'):
    _fraction(record['floors'], name, 'floors.')
  _check_config(record)


def _check_params(record):
  total, mixer = record['num_params'], record['mixer_params']
  if record['status'] == 'ok' and not total:
    raise _RecordError("field 'num_params' is 0")
  if total is not None and mixer is not None and mixer > total:
    raise _RecordError("field 'mixer_params' is larger than 'num_params'")


def _check_scores(record, split, optional):
  if _get(record, split) is None and optional:
    return
  scores = _object(record, split)
  for name in ('accuracy', 'precision', 'recall', 'f1'):
    _fraction(scores, name, f'{split}.')
  _number(scores, 'loss', prefix=f'{split}.')
  _check_confusion(scores, split, _task(record).num_classes)


def _check_confusion(scores, split, num_classes):
  matrix = _get(scores, 'confusion', f'{split}.')
  name = f"field '{split}.confusion'"
  if not (isinstance(matrix, list) and len(matrix) == num_classes and all(
      isinstance(row, list) and len(row) == num_classes for row in matrix)):
    raise _RecordError(f'{name} is not {num_classes} x {num_classes}')
  if not all(_is_count(x) for row in matrix for x in row):
    raise _RecordError(f'{name} holds something other than counts')
  total = sum(map(sum, matrix))
  if not total:
    raise _RecordError(f'{name} counts no example')
  accuracy = sum(matrix[i][i] for i in range(num_classes)) / total
  if abs(accuracy - scores['accuracy']) > 1e-6:
    raise _RecordError(f'{name} gives accuracy {accuracy:.6f} but '
                       f"'{split}.accuracy' is {scores['accuracy']:.6f}")


def _check_config(record):
  config = _object(record, 'config')
  model = config.get('model')
  if model is not None and not isinstance(model, dict):
    raise _RecordError("field 'config.model' is not an object")
  pairs = [(name, config.get(name)) for name in ('task', 'protocol', 'seed')]
  pairs.append(('model', (model or {}).get('name')))
  for name, value in pairs:
    if value is not None and value != record[name]:
      raise _RecordError(f'field {name!r} is {record[name]!r} but its config '
                         f'says {value!r}')


def _check_floors(record):
  if not isinstance(record, dict):
    raise _RecordError('it is not a JSON object')
  _task(record)
  _text(record, 'fingerprint')
  floors = _object(record, 'floors')
  for name in floors:
    floor = _object(floors, name, 'floors.')
    _fraction(floor, 'accuracy', f'floors.{name}.')
    _text(floor, 'how', prefix=f'floors.{name}.')


def _task(record):
  name = _text(record, 'task')
  if name not in tasks.TASKS:
    raise _RecordError(f'{name!r} is not a task')
  return tasks.TASKS[name]


def _get(record, name, prefix=''):
  if name not in record:
    raise _RecordError(f"field '{prefix}{name}' is missing")
  return record[name]


def _object(record, name, prefix=''):
  value = _get(record, name, prefix)
  if not isinstance(value, dict):
    raise _RecordError(f"field '{prefix}{name}' is not an object")
  return value


def _text(record, name, optional=False, prefix=''):
  value = _get(record, name, prefix)
  if value is None and optional:
    return value
  if not isinstance(value, str) or not value.strip():
    raise _RecordError(f"field '{prefix}{name}' is not a text")
  return value


def _is_count(value):
  return (isinstance(value, int) and not isinstance(value, bool)
          and value >= 0)


def _count(record, name, optional=False):
  value = _get(record, name)
  if not ((value is None and optional) or _is_count(value)):
    raise _RecordError(f"field '{name}' is not a count")


def _number(record, name, optional=False, prefix=''):
  value = _get(record, name, prefix)
  if value is None and optional:
    return
  if (isinstance(value, bool) or not isinstance(value, (int, float))
      or not math.isfinite(value) or value < 0):
    raise _RecordError(f"field '{prefix}{name}' is not a number >= 0")


def _fraction(record, name, prefix=''):
  _number(record, name, prefix=prefix)
  if record[name] > 1:
    raise _RecordError(f"field '{prefix}{name}' is {record[name]}, not a "
                       'fraction in [0, 1]')
