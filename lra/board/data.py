"""The results as data: one record a row of the leaderboard, or one a run.

Accuracies, baselines and intervals are fractions. Numbers have at most six
significant digits, so that a CSV file holds no noise of floats.
"""

import csv
import io
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from lra.board import site
from lra.board.boards import TaskBoard
from lra.board.inputs import Speeds
from lra.board.rows import Row, listed, mean
from lra.core import paths
from lra.core.errors import UserError
from lra.core.formats import plain
from lra.schema.result import Result

ROWS, RUNS = NAMES = 'results.csv', 'runs.csv'
# A spreadsheet would take a text that begins so for a formula.
_FORMULA = ('=', '+', '-', '@')


def tables(boards: Sequence[TaskBoard], speeds: Speeds | None
           ) -> dict[str, str]:
  """Returns the CSV files of a leaderboard, by name; {} without a row."""
  found = {ROWS: table(of_rows(boards, speeds)), RUNS: table(of_runs(boards))}
  return {name: text for name, text in found.items() if text}


def frame(folder: str | os.PathLike | None = None, each: str = 'row'):
  """Returns the results as a pandas frame; see `of_rows` and `of_runs`.

  Args:
    folder: folder of records; by default that of this checkout, `lra/results`,
      or `results` if lra is installed.
    each: 'row' for one line a row of the leaderboard, 'run' for one line a run.

  Raises:
    UserError: the folder has no records, `each` is another word, or pandas is
      not installed.
  """
  if each not in ('row', 'run'):
    raise UserError(f"each={each!r} is not possible: choose 'row' or 'run'.")
  try:
    import pandas
  except ImportError as error:
    raise UserError('lra.results() needs pandas: install it, as in '
                    f'{paths.extra("results")}.') from error
  results = pathlib.Path(paths.local(folder or paths.results()))
  place = site.Place(results, paths.page_of(results))
  if not place.runs.is_dir():
    raise UserError(f'{results} has no records, which would be in runs/: give '
                    'lra.results the folder of a checkout, lra/results.')
  found = site.load(place)
  return pandas.DataFrame(
      of_rows(found.boards, found.speeds) if each == 'row' else
      of_runs(found.boards))


def of_rows(boards: Sequence[TaskBoard], speeds: Speeds | None = None
            ) -> list[dict[str, Any]]:
  """Returns one record for each row of the leaderboard.

  Args:
    boards: the boards of all tasks.
    speeds: speeds of the models, timed side by side; None if there are none.

  Returns:
    Records with equal keys. A missing value is None. `table` is the protocol
    and how its settings were departed from; only rows with one task and one
    table can be compared. `low` to `high` is the 95% interval, over `seeds` or
    test `examples`. `rank` to `last_rank` are the ranks that it may have.
    `relative_speed` and `relative_memory` compare a training step of the model
    with the Transformer's, under other settings than those of the row.
  """
  return [_tidy(_row(row, speeds)) for board in boards for row in board.rows]


def of_runs(boards: Sequence[TaskBoard]) -> list[dict[str, Any]]:
  """Returns one record for each run of the leaderboard.

  Args:
    boards: the boards of all tasks.

  Returns:
    Records with equal keys. A missing value is None. `longer` has the
    accuracies on further lengths, as in `64=0.5 128=0.25`. `record` is the path
    of the JSON file, which also has every setting.
  """
  return [_tidy(_run(row, run, name)) for board in boards for row in board.rows
          for run, name in zip(row.runs, row.records, strict=True)]


def table(records: Sequence[dict[str, Any]]) -> str:
  """Returns records as CSV; '' if there are none. None is an empty cell."""
  if not records:
    return ''
  out = io.StringIO()
  writer = csv.DictWriter(out, list(records[0]), lineterminator='\n')
  writer.writeheader()
  writer.writerows({name: _cell(value) for name, value in record.items()}
                   for record in records)
  return out.getvalue()


def _row(row: Row, speeds):
  known, ratio = row.interval, lambda values, base: (
      values[row.model] / values[base]
      if row.model in values and base in values else None)
  return {
      **_names(row),
      'family': row.family,
      'accuracy': row.mean,
      'low': known and known.low,
      'high': known and known.high,
      'interval_over': known and ('seeds' if known.over_seeds else 'examples'),
      'deviation': row.deviation,
      'seeds': len(row.finished),
      'runs': len(row.runs),
      'rank': row.rank and row.rank.first,
      'last_rank': row.rank and row.rank.last,
      'baseline': row.baseline and row.baseline.accuracies[0],
      'baseline_name': row.baseline_name,
      'differs_from_baseline': None if row.above_baseline is None
      else row.off_baseline,
      'same_data': not row.elsewhere,
      'val_accuracy': row.average('val', 'accuracy'),
      'test_loss': row.average('test', 'loss'),
      'test_examples': next(
          (getattr(run.test, 'examples', None) for run in row.finished), None),
      'steps': row.largest('steps'),
      'parameters': row.params,
      'relative_parameters': row.ratio,
      'state_size': row.state_size,
      'train_seconds': mean(row.values('train_seconds')),
      'device': ' / '.join(dict.fromkeys(row.devices)),
      'relative_speed': speeds and ratio(speeds.faster, 'transformer'),
      'relative_memory': speeds and ratio(speeds.memory, 'transformer')}


def _run(row: Row, run: Result, name):
  scores = lambda split, field: getattr(
      getattr(run, split), field, None)
  return {
      **_names(row),
      'seed': run.seed,
      'status': run.status,
      'accuracy': scores('test', 'accuracy'),
      'test_loss': scores('test', 'loss'),
      'val_accuracy': scores('val', 'accuracy'),
      'longer': ' '.join(f'{length}={_rounded(found.accuracy)}'
                         for length, found in run.longer.items()),
      **{field: getattr(run, field) for field in (
          'steps', 'best_step', 'learnt_step', 'guessing_step', 'num_params',
          'mixer_params')},
      'state_size': row.state_size,
      **{field: getattr(run, field) for field in (
          'train_seconds', 'eval_seconds', 'compile_seconds', 'steps_per_s',
          'tokens_per_s', 'peak_memory_bytes', 'device', 'num_devices',
          'runs_at_once', 'dtype', 'kernel')},
      'commit': (run.git_commit or '')[:12],
      'modified': run.git_dirty,
      'published': run.git_published,
      'data': run.data_fingerprint[:12],
      'record': name}


def _names(row):
  return {'task': row.task, 'table': row.table.title, 'protocol': row.protocol,
          'model': row.model, 'variant': listed(filter(None, (
              row.variant, row.own_changes)))}


def _tidy(record):
  return {name: plain(value) if isinstance(value, str) else _rounded(value)
          for name, value in record.items()}


def _rounded(value):
  return float(f'{value:.6g}') if isinstance(value, float) else value


def _cell(value):
  if isinstance(value, str) and value.startswith(_FORMULA):
    return f"'{value}"
  return value
