"""A sweep as jobs, by submitit: `run_lra.py --sweep=FILE --executor=slurm`.

A job makes one part of the sweep, `--shard=i/n`, and all of them publish into
one folder. Jobs of Slurm are an array: one that is preempted, or near the end
of its time, checkpoints, is queued again by submitit, and goes on. The executor
`local` starts the same jobs on this machine and waits for them.
"""

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from lra import place, signals
from lra.errors import UserError
from lra.terminal import say

LONGEST_HOURS = 10_000
# A job that is queued again this often has been running for years.
_TIMES = 10_000
# Before the end of a job's time, for its checkpoint.
_WARNING_SECONDS = 90
_RUN = pathlib.Path(__file__).resolve().parent.parent / 'run_lra.py'


class Part:
  """A part of a sweep, as submitit calls it in a job.

  Args:
    arguments: of run_lra.py.
    cores: the processor's cores that it may use; () for all.
    environment: variables that it has besides or instead; None for one that
      it must not have.
  """

  def __init__(self, arguments: Sequence[str], cores: Sequence[int] = (),
               environment: Mapping[str, str | None] | None = None):
    self.arguments, self.cores = tuple(arguments), tuple(cores)
    self.environment = dict(environment or {})

  def __call__(self) -> int:
    """Runs the part; returns its exit code."""
    if self.cores:
      os.sched_setaffinity(0, self.cores)
    self._child = subprocess.Popen(
        [sys.executable, str(_RUN), *self.arguments], env={
            name: value for name, value in {
                **os.environ, **self.environment}.items() if value is not None})
    # submitit lets SIGTERM pass: to end is the run's own business.
    before = signal.signal(signal.SIGTERM, lambda *_: self._stop())
    try:
      self._wait()
      return self._child.wait()
    finally:
      signal.signal(signal.SIGTERM, before)

  def _wait(self):
    """Until the child has ended; Popen's own may not be called twice."""
    with contextlib.suppress(ChildProcessError):
      os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)

  def _stop(self):
    with contextlib.suppress(ProcessLookupError):
      self._child.send_signal(signal.SIGTERM)

  def checkpoint(self):
    """Called by submitit before the job ends: what to queue in its place."""
    from submitit import helpers
    self._stop()
    self._wait()
    return helpers.DelayedSubmission(
        Part(self.arguments, self.cores, self.environment))


def check(executor: str) -> None:
  """Makes sure that jobs can be submitted.

  Raises:
    UserError: submitit or Slurm is not installed.
  """
  if not importlib.util.find_spec('submitit'):
    raise UserError(f'--executor={executor} needs submitit, which is not '
                    f'installed: {place.extra("slurm")}.')
  from submitit.slurm import slurm
  if executor == 'slurm' and not slurm.SlurmExecutor.affinity() > 0:
    raise UserError('--executor=slurm needs the command srun, which is not '
                    'here: run this where Slurm is, or choose '
                    '--executor=local.')


def submit(executor: str, folder: pathlib.Path,
           parts: Sequence[Sequence[str]], *, at_once: int,
           cpus: int | None = None, gpus: int = 0,
           partition: str | None = None, hours: float) -> list:
  """Submits a job for each part.

  Args:
    executor: 'slurm' or 'local'; see `check`.
    folder: where jobs keep their logs; every node must see it.
    parts: arguments of run_lra.py for each job.
    at_once: how many jobs of an array run at the same time.
    cpus: processor cores of a job; None for what the cluster gives, or here
      for all.
    gpus: of a job.
    partition: of the cluster; None for its default.
    hours: that a job may take before it is queued again.

  Returns:
    submitit's jobs.

  Raises:
    UserError: Slurm refuses them.
  """
  import submitit
  from submitit.core.utils import FailedJobError
  os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, (
      str(_RUN.parent), os.environ.get('PYTHONPATH'))))
  made = submitit.AutoExecutor(
      folder, cluster=executor, **{f'{executor}_max_num_timeout': _TIMES})
  made.update_parameters(
      timeout_min=max(round(60 * hours), 1), name='lra',
      slurm_signal_delay_s=_WARNING_SECONDS, slurm_array_parallelism=at_once,
      **{name: value for name, value in {
          'gpus_per_node': gpus, 'cpus_per_task': cpus,
          'slurm_partition': partition}.items() if value})
  here = _here if executor == 'local' else lambda *_: {}
  tasks = [Part(arguments, **here(index, cpus, gpus))
           for index, arguments in enumerate(parts)]
  try:
    with signals.unblocked(), made.batch():
      return [made.submit(task) for task in tasks]
  except FailedJobError as e:
    raise UserError(
        f'Slurm takes no jobs ({" ".join(str(e).split())[:500]}).') from e


def _here(index, cpus, gpus):
  """Cores and GPUs of the `index`-th job here; other jobs have others.

  All of them where nobody has said how many. (submitit would hide the GPUs of
  who asks for none, and give the first ones to every job.)
  """
  visible = os.environ.get('CUDA_VISIBLE_DEVICES')
  cores = sorted(os.sched_getaffinity(0)) if hasattr(
      os, 'sched_getaffinity') and cpus else []
  if gpus:
    named = visible.split(',') if visible else [str(i) for i in range(1024)]
    visible = ','.join(
        named[(index * gpus + i) % len(named)] for i in range(gpus))
  return {'environment': {'CUDA_VISIBLE_DEVICES': visible}, 'cores': sorted({
      cores[(index * cpus + i) % len(cores)] for i in range(cpus)
  }) if cores else ()}


def wait(jobs: Sequence, show: Callable[[], None]) -> bool:
  """Waits for jobs of this machine; a signal stops them, with checkpoints.

  Args:
    jobs: those of `submit`.
    show: called now and then.

  Returns:
    Whether one was stopped before its end, by a signal or a time limit.
  """
  with signals.later('once the jobs have stopped'):
    told = False
    while not all(job.done() for job in jobs):
      if signals.reason() and not told:
        told = True
        for job in jobs:
          job._process.send_signal(signal.SIGTERM)
      show()
      time.sleep(0.2)
  if told:
    say('The jobs have stopped: the same command goes on.')
  return told or any(
      job.exception() is None and job.result() == signals.STOPPED
      for job in jobs)
