"""Scores, predictions and comparisons of finished runs."""

import pathlib
from collections.abc import Sequence

from lra.board import statistics
from lra.board.rows import Row, shown
from lra.core import files
from lra.core.errors import UserError
from lra.core.formats import percent, points
from lra.schema import fields, identity
from lra.schema import result as results
from lra.share import hub

_LINE = 60  # most characters to print of an example


def evaluate(folder: pathlib.Path, lengths: Sequence[str] = ()) -> str:
  """Returns test scores of a run's model, beside the recorded ones.

  Args:
    folder: a run directory, a checkpoint or another model of `api.load`.
    lengths: if given, scores generated sequences of these lengths instead.

  Raises:
    UserError: `api.load` or `api.Trained.evaluate_longer` raises it, or the
      data is not that of the run.
  """
  from lra.share import api
  folder = hub.place(folder)
  if lengths:
    return _evaluate_longer(folder, lengths)
  trained = api.load(folder)
  scores = trained.evaluate('test', same_data=True)
  numbers = {name: value for name, value in scores.items()
             if isinstance(value, float)}
  recorded = results.read_if_there(folder / 'result.json')
  lines = [f'{trained.config.model.name} on {trained.config.task}, parameters '
           f'of step {trained.step}']
  for name, value in numbers.items():
    before = recorded and recorded.test and getattr(recorded.test, name, None)
    known = '' if before is None else f'  (recorded {before:.4f})'
    lines.append(f'  {name:10}{value:8.4f}{known}')
  return '\n'.join(lines)


def _evaluate_longer(folder, lengths):
  from lra.share import api
  asked = [name.strip() for name in lengths]
  trained = api.load(folder)
  recorded = results.read_if_there(folder / 'result.json')
  task = trained.program.objective.task
  lines = [f'{trained.config.model.name} on {task.name}, trained on up to '
           f'{task.seq_len} tokens, parameters of step {trained.step}',
           f'  {"tokens":10}{"accuracy":>10}{"scaled":>9}']
  for name in asked:
    scores = trained.evaluate_longer(name)
    known = recorded and recorded.longer.get(name)
    accuracy = scores['accuracy']
    lines.append(
        f'  {name:10}{accuracy:10.4f}{task.scaled(accuracy):9.4f}'
        + (f'  (recorded {known.accuracy:.4f})' if known else ''))
  lines.append('Scaled accuracy is 0 for guessing one of '
               f'{task.num_classes} classes and 1 for no error.')
  return '\n'.join(lines)


def predict(path: pathlib.Path, folder: pathlib.Path) -> str:
  """Returns class, probability and example for each line of a file.

  Empty lines stay empty.

  Raises:
    UserError: the file cannot be read, a line is not an example, or `api.load`
      or `api.Trained.predict` raises it.
  """
  from lra.data_prep.encode import NoExample
  from lra.share import api
  lines = _lines(path)
  trained = api.load(folder)
  dual = trained.program.objective.task.dual
  places = [i for i, line in enumerate(lines) if line]
  examples = [lines[i].split('\t') if dual else lines[i] for i in places]
  try:
    found = trained.predict(examples)
  except NoExample as e:
    raise UserError(
        f'{path}, line {places[e.number] + 1} is not an example of '
        f'{trained.config.task} ({e.why}): correct that line.') from e
  said = dict(zip(places, found, strict=True))
  return '\n'.join(
      f'{said[i].name}\t{said[i].probabilities[said[i].label]:.4f}\t'
      f'{_short(line)}' if i in said else '' for i, line in enumerate(lines))


def _lines(path):
  """Returns the lines of a text file, which end with \\n or \\r\\n only."""
  try:
    text = files.read(path, files.MAX_LINES).decode('utf-8-sig')
  except (OSError, ValueError) as e:
    raise UserError(
        f'{path} cannot be read ({e}): give a text file with one example a '
        'line.') from e
  lines = [line.removesuffix('\r') for line in text.split('\n')]
  if not any(lines):
    raise UserError(f'{path} is empty: write one example a line.')
  return lines if lines[-1] else lines[:-1]


def _short(line):
  text = ' | '.join(line.split('\t'))
  return text if len(text) <= _LINE else f'{text[:_LINE - 1]}…'


def compare(first: pathlib.Path, second: pathlib.Path) -> str:
  """Returns fields that differ, scores with intervals and a significance test.

  Args:
    first, second: run directories with a result, or records.

  Raises:
    UserError: a run cannot be read, is not finished or is not a classifier, or
      the runs have different test splits.
  """
  runs = [results.classified(path) for path in (first, second)]
  a, b = runs
  if (a.task, a.data_fingerprint) != (b.task, b.data_fingerprint):
    raise UserError(
        f'{first} has {a.task} (data {a.data_fingerprint[:8]}) and {second} '
        f'has {b.task} (data {b.data_fingerprint[:8]}): only runs on one test '
        'split can be compared.')
  flat, filled = zip(*(_filled(r.config) for r in runs), strict=True)
  lines = [f'{"":34}{"A":>22}{"B":>22}']
  lines += [
      f'{name:34}{_value(flat[0], name):>22}{_value(flat[1], name):>22}'
      for name in sorted({*flat[0], *flat[1]})
      if _value(flat[0], name) != _value(flat[1], name)]
  lines += [
      f'{len(names)} fields did not exist yet when {run} was trained; '
      'their values describe how that version trained.'
      for run, names in zip('AB', filled, strict=True) if names]
  rows = [Row([r]) for r in runs]
  lines.append(f'{"test accuracy %":34}' + ''.join(
      f'{percent(row.mean, row.digits):>22}' for row in rows))
  lines.append(f'{"95% interval over test examples":34}' + ''.join(
      f'{_interval(row):>22}' for row in rows))
  return '\n'.join([*lines, *_verdict(*rows)])


def _filled(config):
  """Returns the fields of a config, and the names of those added since then.

  A field that was added later gets the value that describes earlier versions.
  """
  flat = identity.flatten(config)
  later = {name: value for name, value in fields.added(
      flat.get('model.name', '')).items() if name not in flat}
  return {**flat, **later}, sorted(later)


def _interval(row):
  return ' to '.join(percent(end, row.digits) for end in (
      row.interval.low, row.interval.high))


def _value(flat, name):
  return shown(flat[name]) if name in flat else 'unset'


def _verdict(*rows):
  a, b = (row.sample for row in rows)
  p = statistics.p_value(a, b)
  difference = points(b.accuracies[0] - a.accuracies[0],
                      min(row.digits for row in rows))
  paired = a.correct is not None and b.correct is not None
  yield f'B - A: {difference} points'
  if paired:
    only_a, only_b = (int((x.correct & ~y.correct).sum())
                      for x, y in ((a, b), (b, a)))
    yield f'right in A only: {only_a:,}; in B only: {only_b:,}'
  test = ('McNemar, exact, on the same examples' if paired else
          'Fisher, exact: a record lacks the answers to single examples')
  verdict = 'differ' if p < 0.05 else 'do not differ'
  yield (f'p = {p:.3g} ({test}): these two runs {verdict} significantly at 5%; '
         'other seeds may give another result.')
  yield ('This test is about these two networks. The leaderboard compares all '
         'seeds of its rows and corrects for their number, so its ranks may '
         'differ.')
