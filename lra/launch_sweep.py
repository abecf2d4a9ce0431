"""What --sweep asks for: its runs, in this process or in jobs, and a table."""

import pathlib
import sys

from absl import flags

from lra import launch, options, place, progress, signals, sweep
from lra.training import writers

# Of this command, and of those that make its parts.
_PASSED_ON = ('record', 'replace', 'results_dir', 'page', 'compile_cache',
              'log', 'at_once')


def run() -> int:
  """Runs or describes --sweep; 0 once every run of it is finished.

  Of jobs of Slurm 0 once they are queued.

  Raises:
    UserError: there is no such sweep, or no such job; or runs have failed.
  """
  writers.check(options.LOG.value)
  whole = sweep.read(place.found(options.SWEEP.value))
  part = options.SHARD.value
  entries = whole if part is None else sweep.shard(whole, part)
  if not entries:
    configs = len(sweep.by_config(whole))
    print(f'--shard={part} has no run: the sweep has only {configs} '
          f'config{"s" * (configs > 1)}, and a part has whole configs.')
    return 0
  records = _records(entries) if (
      options.STATUS.value or options.MISSING.value) else {}
  if options.MISSING.value:
    others = [e for e in entries if e.repetition not in records]
    print(f'{len(entries) - len(others)} of {len(entries)} runs are left out: '
          f'{options.RESULTS_DIR.value} has a record of each.', flush=True)
    if not others:
      return 0
    entries = others
  launch.warn_of_edits((entry.folder, entry.result()[0]) for entry in entries)
  if options.STATUS.value:
    progress.show(entries, sys.stdout, records)
    return 0
  extra = tuple(flags.FLAGS[name].serialize() for name in _PASSED_ON
                if flags.FLAGS[name].value not in (None, []))
  if options.EXECUTOR.value:
    stopped = _submit(whole, entries, extra)
    if stopped is None:
      return 0
  else:
    stopped = sweep.run(
        entries, extra=extra, max_minutes=options.MAX_MINUTES.value,
        recorded=launch.is_recorded)
  print(progress.table([progress.of(entry) for entry in entries]), flush=True)
  left = sweep.left(entries, launch.is_recorded)
  if left and not stopped:
    raise sweep.failure(left, len(entries))
  return signals.STOPPED if left else 0


def _records(entries):
  return progress.recorded(
      entries, pathlib.Path(options.RESULTS_DIR.value) / 'runs')


def _submit(whole, entries, extra):
  """Makes jobs of what is left of these entries of the whole sweep.

  A job counts its part in the whole: records appear while it waits.

  Returns:
    Whether they were stopped; None if they are queued and may not have begun.
  """
  from lra import cluster
  executor, jobs = options.EXECUTOR.value, options.JOBS.value
  cluster.check(executor)
  configs = len(sweep.by_config(whole))
  local = executor == 'local'
  parts = min(jobs or 2, configs) if local else configs
  shards = [f'{i}/{parts}' for i in range(1, parts + 1)]
  left = set(sweep.left(entries, launch.is_recorded))
  shards = [shard for shard in shards
            if not left.isdisjoint(sweep.shard(whole, shard))]
  if not shards:
    return False
  name = options.SWEEP.value
  folder = pathlib.Path('runs', 'jobs', pathlib.Path(name).stem)
  limit = options.MAX_MINUTES.value
  if limit is not None:
    extra = (*extra, f'--max_minutes={limit}')
  if options.MISSING.value:
    extra = (*extra, '--missing')
  made = cluster.submit(
      executor, folder, [
          (f'--sweep={name}', f'--shard={shard}', *extra) for shard in shards],
      at_once=jobs or parts, cpus=options.CPUS.value, gpus=options.GPUS.value,
      partition=options.PARTITION.value,
      hours=cluster.LONGEST_HOURS if local else options.HOURS.value or 4)
  print(f'{len(made)} jobs: {" ".join(job.job_id for job in made)}; their logs '
        f'are in {folder}. --status shows where the runs stand.', flush=True)
  if not local:
    return None
  return cluster.wait(made, progress.Live(entries, sys.stdout).draw)
