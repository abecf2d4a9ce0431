"""Runs --suite: a search for each model and task, then the chosen setting."""

import collections
import math
import pathlib
import time

from absl import flags

from lra.board import publish, rows
from lra.cli import launch, options
from lra.core.formats import NONE, aligned, percent
from lra.many import plan, runner, suite, sweep
from lra.run import writers
from lra.schema.result import SEARCHED

# Flags that are passed on to the processes of a suite.
_PASSED_ON = ('compile_cache', 'log', 'at_once')
_HEAD = ('model', 'task', 'chosen', 'by', 'val %', 'test %', '95% interval',
         'seeds')


def run() -> int:
  """Runs or plans --suite; returns 0 once all chosen runs are finished.

  Raises:
    UserError: there is no such suite or model, or runs have failed for reasons
      that a user can correct.
  """
  writers.check(options.LOG.value)
  began = time.monotonic()
  units = suite.read(options.SUITE.value, options.MODELS.value)
  how = {'broken': set()}
  if options.PLAN.value or options.MAX_MINUTES.value:
    estimate = plan.estimator(
        [entry for unit in units for entry in unit.search],
        pathlib.Path(options.RESULTS_DIR.value))
    how['compiling'] = lambda entry: estimate(entry).compiling
  if options.PLAN.value:
    print(f'The plan of the suite {options.SUITE.value}:')
    print(plan.table([planned(unit, estimate) for unit in units],
                     options.MAX_MINUTES.value, 'searches'))
    return 0
  recorded = launch.to_record(True)
  if recorded:
    publish.check(launch.place(), {unit.task.split(',')[0] for unit in units})
  stopped = False
  for number, unit in enumerate(units, 1):
    print(f'[{number} of {len(units)}] {unit.title}: best of '
          f'{len(unit.settings)} settings', flush=True)
    stopped = _unit(unit, began, how)
    if stopped:
      break
  print(table(units), flush=True)
  if not recorded and options.RECORD.value is None:
    print('Not on the leaderboard: --record adds the chosen runs, in tables '
          'of searched settings.')
  return sweep.exit_code(
      [entry for unit in units for entry in _left(unit)], stopped,
      sum(unit.total for unit in units), how['broken'], 'suite')


def _unit(unit, began, how):
  """Searches, chooses, trains and records; returns whether a stop came."""
  extra = ('--norecord', *(
      flags.FLAGS[name].serialize() for name in _PASSED_ON
      if flags.FLAGS[name].value not in (None, [])))
  if runner.run(unit.search, extra=(*extra, '--notest'), ended=SEARCHED,
                max_minutes=launch.minutes_left(began), **how):
    return True
  chosen = suite.choice(unit)
  if chosen is None:
    return False  # a run of the search has failed
  stopped = runner.run(list(chosen.runs), extra=extra,
                       max_minutes=launch.minutes_left(began), **how)
  if launch.to_record(True):
    for entry in chosen.runs:
      _record(entry, chosen.search)
  return stopped


def _record(entry, search):
  """Publishes a chosen run with its search, unless that is done."""
  result, _ = entry.result()
  if result is None or not result.finished:
    return
  result = result.model_copy(update={'search': search})
  replace = options.REPLACE.value
  if not publish.done(result, launch.place(), replace=replace):
    publish.publish(result, launch.place(), replace=replace)


def _left(unit):
  """Returns the runs of a unit that have not ended, as far as they are known.
  """
  left = sweep.left(unit.search, lambda result: True, SEARCHED)
  chosen = suite.choice(unit)
  return left if chosen is None else sweep.left(
      list(chosen.runs), lambda result: True)


def planned(unit: suite.Unit, estimate) -> plan.Estimate:
  """Returns the work that is left of a unit, as one estimate.

  Args:
    unit: a model on a task.
    estimate: see `plan.estimator`. Before the choice, the first setting stands
      for the chosen one: other settings take as long.
  """
  chosen = suite.choice(unit)
  first, *others = unit.settings[0] if chosen is None else (
      chosen.runs or [None])
  parts = [estimate(entry, ('train',)) for entry in unit.search]
  parts += [estimate(first, ('test',))] if first else []
  parts += [estimate(entry) for entry in others]
  known = [part.seconds for part in parts]
  total = None if None in known else math.fsum(known)
  # The updates of the first run are counted in the search.
  steps = sum(part.steps for part in parts) - (parts[0].steps if first else 0)
  ended = unit.total - len(
      [e for e in {*unit.search, *others} if e.status() not in SEARCHED])
  sources = collections.Counter(
      part.source for part in parts if part.seconds != 0)
  return plan.Estimate(
      f'{unit.title}, best of {len(unit.settings)}',
      f'{ended} of {unit.total}', sum(part.left for part in parts), steps,
      total, None, sources.most_common(1)[0][0] if sources else 'finished')


def table(units: list[suite.Unit]) -> str:
  """Returns one line for each model and task: the choice and its scores.

  Test scores are of the chosen setting only.
  """
  return '\n'.join(aligned([_HEAD, *map(_cells, units)]))


def _cells(unit):
  chosen = suite.choice(unit)
  if chosen is None:
    done = len(unit.settings) - len(
        sweep.left(unit.search, lambda result: True, SEARCHED))
    return (unit.model, unit.task, NONE,
            f'{done} of {len(unit.settings)} settings are tried',
            *[NONE] * 4)
  results = [entry.result()[0] for entry in chosen.runs]
  tested = [run for run in results if run is not None and run.status == 'ok']
  row = rows.Row(tested)
  known = row.interval
  return (unit.model, unit.task, chosen.setting, chosen.search.text,
          percent(chosen.score), percent(row.mean, row.digits),
          NONE if known is None else ' to '.join(
              percent(x, row.digits) for x in (known.low, known.high)),
          f'{len(tested)} of {len(unit.settings[0])}')
