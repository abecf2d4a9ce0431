"""Runs --sweep in this process or in jobs, and prints a table."""

import pathlib
import sys
import time

from absl import flags

from lra.cli import launch, launch_jobs, options
from lra.core import paths
from lra.many import best, bundle, plan, progress, runner, sweep
from lra.many import study_page as page
from lra.run import writers

# Flags that are passed on to the processes and jobs of a sweep.
_PASSED_ON = ('record', 'replace', 'results_dir', 'page', 'compile_cache',
              'log', 'at_once')


def run() -> int:
  """Runs or describes --sweep; returns 0 once every run of it is finished.

  With Slurm it returns 0 once the jobs are queued. It returns `errors.BUG` if a
  run ended by a bug.

  Raises:
    UserError: there is no such sweep, job or bundle; or runs have failed for
      reasons that a user can correct.
  """
  writers.check(options.LOG.value)
  if options.PLAN.value:
    print(f'The plan of {options.SWEEP.value}:', flush=True)
  began = time.monotonic()
  whole = sweep.read(pathlib.Path(options.SWEEP.value))
  part = options.SHARD.value
  entries = whole if part is None else sweep.shard(whole, part)
  if not entries:
    configs = len(sweep.by_config(whole))
    print(f'--shard={part} has no run: the sweep has only {configs} '
          f'config{"s" * (configs > 1)}, and a part has whole configs.')
    return 0
  if options.BUNDLE.value:
    bundle.check(pathlib.Path(options.BUNDLE.value))
  if options.FROM_BUNDLE.value:
    bundle.unpack(
        pathlib.Path(options.FROM_BUNDLE.value), entries, _results())
  if not options.BUNDLE.value:
    return _run(whole, entries, began)
  try:
    return _run(whole, entries, began)
  finally:
    bundle.pack(pathlib.Path(options.BUNDLE.value), entries, _results())


def _run(whole, entries, began):
  """Runs or describes these entries of the whole sweep."""
  described = options.STATUS.value or options.PLAN.value
  records = _records(entries) if described or options.MISSING.value else {}
  if options.MISSING.value:
    others = [e for e in entries if e.repetition not in records]
    print(f'{len(entries) - len(others)} of {len(entries)} runs are left out: '
          f'{options.RESULTS_DIR.value} has a record of each.', flush=True)
    if not others:
      return 0
    entries = others
  if options.PLAN.value:
    print(plan.table(
        list(map(plan.estimator(entries, _results(), records), entries)),
        options.MAX_MINUTES.value))
    return 0
  launch.warn_of_edits((entry.folder, entry.result()[0]) for entry in entries)
  if options.STATUS.value:
    progress.show(entries, sys.stdout, records, whole)
    return 0
  extra = tuple(flags.FLAGS[name].serialize() for name in _PASSED_ON
                if flags.FLAGS[name].value not in (None, []))
  broken = set()
  if options.EXECUTOR.value:
    stopped = launch_jobs.submit(whole, entries, extra, broken)
    if stopped is None:
      return 0
  else:
    if any(len(unit) > 1 for unit in best.units(whole)):
      extra = (*extra, '--noshow_test')
    stopped = _in_turn(entries, extra, began, broken)
  print(progress.text(entries, whole=whole), flush=True)
  if entries[0].arm and (options.RECORD.value or options.REPLACE.value):
    write_studies()
  for unit in best.units(entries):
    if len(unit) == 1 and len(unit[0]) > 1:
      _print_mean(*unit)
  return sweep.exit_code(sweep.left(entries, launch.is_recorded), stopped,
                         len(entries), broken)


def write_studies() -> None:
  """Writes the page: in docs/ for the records of a checkout, else beside them.

  Raises:
    UserError: a study, or a measurement, is not valid.
  """
  ours = launch.place().usual and not paths.installed()
  path = (paths.ROOT / 'docs' if ours else _results()) / 'studies.md'
  page.write(path, _results())
  print(f'wrote {path}')


def _print_mean(runs):
  """Prints the test accuracy of several seeds, also if no run was left."""
  results = [entry.result()[0] for entry in runs]
  said = best.tested([run for run in results if run is not None])
  if said:
    print(f'{sweep.title(runs[0].config_flags)}: {said}')


def _in_turn(entries, extra, began, broken):
  """Runs entries here; time spent since `began` counts towards --max_minutes.
  """
  how = {}
  if options.MAX_MINUTES.value:
    estimate = plan.estimator(entries, _results())
    how['compiling'] = lambda entry: estimate(entry).compiling
  return runner.run(
      entries, extra=extra, max_minutes=launch.minutes_left(began),
      recorded=launch.is_recorded,
      compile_ahead=bool(flags.FLAGS['compile_cache'].value) and (
          runner.may_compile_ahead()), broken=broken,
      **how)


def _results():
  return pathlib.Path(options.RESULTS_DIR.value)


def _records(entries):
  return progress.recorded(entries, _results() / 'runs')
