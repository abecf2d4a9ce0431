"""The results as data: one record a row of the leaderboard, or one a run.

Accuracies, baselines and intervals are fractions. Numbers have at most six
significant digits. A missing value is None.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from lra.board import catalogue, site
from lra.board.frame import Board
from lra.board.inputs import Speeds
from lra.board.rows import listed
from lra.core import paths
from lra.core.errors import UserError
from lra.core.formats import plain

ROWS, RUNS = NAMES = 'results.csv', 'runs.csv'
_OF_ROWS = (
    'task', 'table', 'protocol', 'model', 'variant', 'family', 'accuracy',
    'low', 'high', 'interval_over', 'deviation', 'seeds', 'runs', 'rank',
    'last_rank', 'baseline', 'baseline_name', 'differs_from_baseline',
    'same_data', 'val_accuracy', 'test_loss', 'test_examples', 'steps',
    'parameters', 'relative_parameters', 'state_size', 'train_seconds',
    'device', 'relative_speed', 'relative_memory')
_OF_RUNS = (
    'task', 'table', 'protocol', 'model', 'variant', 'seed', 'status',
    'accuracy', 'test_loss', 'val_accuracy', 'longer', 'steps', 'best_step',
    'learnt_step', 'guessing_step', 'num_params', 'mixer_params', 'state_size',
    'train_seconds', 'eval_seconds', 'compile_seconds', 'steps_per_s',
    'tokens_per_s', 'peak_memory_bytes', 'device', 'num_devices',
    'runs_at_once', 'dtype', 'kernel', 'commit', 'modified', 'published',
    'data', 'record')
# A spreadsheet would take a text that begins so for a formula.
_FORMULA = ('=', '+', '-', '@')


def frame(folder: str | os.PathLike | None = None, each: str = 'row'
          ) -> pandas.DataFrame:
  """Returns the results as a frame; see `of_rows` and `of_runs`.

  Args:
    folder: folder of records; by default that of this checkout, `lra/results`,
      or `results` if lra is installed.
    each: 'row' for one line a row of the leaderboard, 'run' for one line a run.
  """
  if each not in ('row', 'run'):
    raise UserError(f"each={each!r} is not possible: choose 'row' or 'run'.")
  results = pathlib.Path(paths.local(folder or paths.results()))
  place = site.Place(results, paths.page_of(results))
  if not place.runs.is_dir():
    raise UserError(f'{results} has no records, which would be in runs/: give '
                    'lra.results the folder of a checkout, lra/results.')
  found = site.load(place)
  return pandas.DataFrame(
      of_rows(found.boards, found.speeds) if each == 'row' else
      of_runs(found.boards))


def csv_files(boards: Sequence[Board], speeds: Speeds | None
              ) -> dict[str, str]:
  """Returns the CSV files of a leaderboard, by name; {} without a row."""
  found = {ROWS: of_rows(boards, speeds), RUNS: of_runs(boards)}
  return {name: table(records) for name, records in found.items() if records}


def table(records: Sequence[Mapping[str, Any]]) -> str:
  """Returns records as CSV. None is an empty cell, and no text is a formula."""
  cells = [{name: f"'{value}" if isinstance(value, str) and value.startswith(
      _FORMULA) else value for name, value in record.items()}
           for record in records]
  return pandas.DataFrame(cells, dtype=object).to_csv(
      index=False, lineterminator='\n')


def of_rows(boards: Sequence[Board], speeds: Speeds | None = None
            ) -> list[dict[str, Any]]:
  """Returns one record for each row of the leaderboard.

  `table` is the protocol and how its settings were departed from; only rows
  with one task and one table can be compared. `low` to `high` is the 95%
  interval, over `seeds` or test `examples`. `rank` to `last_rank` are the ranks
  that it may have. `relative_speed` and `relative_memory` compare a training
  step of the model with the Transformer's, under other settings than those of
  the row; they are None without `speeds`.
  """
  faster, memory = (speeds.faster, speeds.memory) if speeds else ({}, {})
  relative = {model: size / memory[catalogue.REFERENCE]
              for model, size in memory.items()}
  return [_tidy(_OF_ROWS, {
      **line, **_names(line),
      'same_data': not (line['foreign'] or line['apart']),
      'relative_speed': faster.get(line['model']),
      'relative_memory': relative.get(line['model'])})
          for line in _lines(boards)]


def of_runs(boards: Sequence[Board]) -> list[dict[str, Any]]:
  """Returns one record for each run of the leaderboard.

  `longer` has the accuracies on further lengths, as in `64=0.5 128=0.25`.
  `record` is the path of the JSON file, which also has every setting.
  """
  return [_tidy(_OF_RUNS, {
      **dict(run), **_names(line),
      'accuracy': getattr(run.test, 'accuracy', None),
      'test_loss': getattr(run.test, 'loss', None),
      'val_accuracy': getattr(run.val, 'accuracy', None),
      'longer': ' '.join(f'{length}={_rounded(found.accuracy)}'
                         for length, found in run.longer.items()),
      'state_size': line['state_size'], 'commit': (run.git_commit or '')[:12],
      'modified': run.git_dirty, 'published': run.git_published,
      'data': run.data_fingerprint[:12], 'record': file})
          for line in _lines(boards)
          for run, file in zip(
              line['row'].runs, line['row'].files, strict=True)]


def _lines(boards):
  return (line for board in boards for line in board.rows.to_dict('records'))


def _names(line):
  row = line['row']
  return {'task': row.task, 'table': row.table.title, 'protocol': row.protocol,
          'model': row.model, 'variant': listed(filter(None, (
              line['variant'], row.own_changes)))}


def _tidy(names, record):
  return {name: plain(record[name]) if isinstance(record[name], str) else
          _rounded(record[name]) for name in names}


def _rounded(value):
  return float(f'{value:.6g}') if isinstance(value, float) else value
