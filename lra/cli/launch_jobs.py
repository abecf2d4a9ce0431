"""Runs a sweep in jobs of Slurm or of this machine: --executor."""

import pathlib
import sys

from lra.cli import launch, options
from lra.core import signals
from lra.many import cluster, progress, runner, sweep


def submit(whole: list[sweep.Entry], entries: list[sweep.Entry],
           extra: tuple[str, ...], broken: set[int]) -> bool | None:
  """Makes jobs for the unfinished entries.

  The jobs are parts of the whole sweep, not only of what is left: records may
  appear while a job waits.

  Args:
    whole: the runs of the sweep.
    entries: the runs of this call.
    extra: flags for each job.
    broken: set that receives the lines of jobs that ended by a bug or a signal.

  Returns:
    Whether the jobs were stopped; None if they are queued and may not have
    begun.
  """
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
  arguments = {
      shard.replace('/', '-of-'): (
          f'--sweep={name}', f'--shard={shard}', *extra) for shard in shards}
  how = {'cpus': options.CPUS.value, 'gpus': options.GPUS.value}
  if not local:
    _say(cluster.submit(
        folder, list(arguments.values()), at_once=jobs or parts, **how,
        partition=options.PARTITION.value, hours=options.HOURS.value or 4),
        folder)
    return None
  with signals.later('once the jobs have stopped'):
    made = cluster.Here(folder, arguments, **how)
    _say(arguments, folder)
    codes = made.wait(progress.Live(
        entries, sys.stdout, whole=whole).draw)
  for shard, code in zip(shards, codes, strict=True):
    if runner.is_bug(code):
      broken.update(entry.line for entry in sweep.shard(whole, shard))
  return bool(signals.reason()) or signals.STOPPED in codes


def _say(names, folder):
  print(f'{len(names)} jobs: {" ".join(names)}; their logs are in {folder}. '
        '--status shows the progress of the runs.', flush=True)
