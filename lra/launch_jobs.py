"""The jobs of a sweep, of Slurm or of this machine: --executor."""

import pathlib
import sys

from lra import cluster, launch, options, progress, sweep


def submit(whole: list[sweep.Entry], entries: list[sweep.Entry],
           extra: tuple[str, ...]) -> bool | None:
  """Makes jobs of what is left of these entries of the whole sweep.

  A job counts its part in the whole: records appear while it waits.

  Args:
    whole: the runs of the sweep.
    entries: those of this call.
    extra: flags for each job.

  Returns:
    Whether they were stopped; None if they are queued and may not have begun.
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
