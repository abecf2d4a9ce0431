"""Trains a file of runs in jobs of Slurm or of this machine, by submitit.

Each job trains one part of the runs, and all jobs publish into one folder. A
job of Slurm that is preempted or near its time limit writes a checkpoint;
submitit queues it again and it resumes. Jobs of this machine end with the
command that started them: it holds a lock, for which they wait.
"""

import contextlib
import fcntl
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from lra.core import files, paths, signals
from lra.core.errors import BUG, UserError
from lra.core.terminal import say
from lra.many.processes import RUN

# How often a job may be queued again at its time limit: enough for years.
_TIMES = 10_000
# Seconds before the time limit at which a job is warned, so that it can save.
_WARNING_SECONDS = 90
_YEARS = 60 * 24 * 365 * 10  # minutes: no limit for jobs of this machine
_LOCK = '.running'


class Part:
  """A part of the runs, as submitit calls it in a job.

  Args:
    arguments: arguments of run_lra.py.
    lock: lock of the command that waits for the job; None for Slurm.
    gpus: value of CUDA_VISIBLE_DEVICES; None leaves it as Slurm sets it.
    cores: the CPU cores of the job; () for all that it has.
  """

  def __init__(self, arguments: Sequence[str],
               lock: pathlib.Path | None = None, gpus: str | None = None,
               cores: Sequence[int] = ()):
    self.arguments = tuple(arguments)
    self._lock, self._gpus, self._cores = lock, gpus, cores
    self._child = None

  def __call__(self) -> int:
    """Runs the part; returns its exit code."""
    environment = dict(os.environ)
    if self._gpus is not None:
      environment['CUDA_VISIBLE_DEVICES'] = self._gpus
    elif self._lock:  # submitit hides the GPUs of which no number is given
      environment.pop('CUDA_VISIBLE_DEVICES', None)
    if self._cores:
      os.sched_setaffinity(0, self._cores)
    # submitit ignores SIGTERM. So it is passed on to the run, which then ends.
    before = signal.signal(signal.SIGTERM, lambda *_: self._stop())
    self._child = subprocess.Popen(
        [sys.executable, str(RUN), *self.arguments], env=environment,
        stdin=subprocess.DEVNULL)
    if self._lock:
      threading.Thread(target=self._end_with_command, daemon=True).start()
    try:
      self._wait()
      return self._child.wait()
    finally:
      signal.signal(signal.SIGTERM, before)

  def _end_with_command(self):
    """Stops the part once the command that started it has ended."""
    with files.lock_file(self._lock) as lock:
      fcntl.flock(lock, fcntl.LOCK_SH)
      self._stop()
      self._wait()

  def _wait(self):
    """Waits until the child has ended; Popen's own wait may not run twice."""
    with contextlib.suppress(ChildProcessError):
      os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)

  def _stop(self):
    with contextlib.suppress(ProcessLookupError):
      self._child.send_signal(signal.SIGTERM)

  def checkpoint(self):
    """Stops the part and returns the job to queue in its place.

    submitit calls this before the job ends.
    """
    from submitit import helpers
    self._stop()
    self._wait()
    return helpers.DelayedSubmission(Part(self.arguments))


def check(executor: str) -> None:
  """Raises UserError if submitit or Slurm is not installed."""
  if not importlib.util.find_spec('submitit'):
    raise UserError(f'--executor={executor} needs submitit, which is not '
                    f'installed: {paths.extra("slurm")}.')
  from submitit.slurm import slurm
  if executor == 'slurm' and not slurm.SlurmExecutor.affinity() > 0:
    raise UserError('--executor=slurm needs the command srun, which is not '
                    'installed: run this on a Slurm machine, or choose '
                    '--executor=local.')


def submit(folder: pathlib.Path, parts: Sequence[Sequence[str]], *,
           at_once: int, cpus: int | None = None, gpus: int = 0,
           partition: str | None = None, hours: float) -> None:
  """Submits a job of Slurm for each part, the arguments of run_lra.py.

  Every node must see the `folder` of logs. `at_once` jobs run at the same time,
  each with `cpus` and `gpus`, and are queued again after so many hours.

  Raises:
    UserError: Slurm refuses them.
  """
  from submitit.core.utils import FailedJobError
  made = _executor(folder, 'slurm', slurm_max_num_timeout=_TIMES)
  made.update_parameters(
      timeout_min=max(round(60 * hours), 1), name='lra',
      slurm_signal_delay_s=_WARNING_SECONDS, slurm_array_parallelism=at_once,
      **{name: value for name, value in {
          'gpus_per_node': gpus, 'cpus_per_task': cpus,
          'slurm_partition': partition}.items() if value})
  try:
    with signals.unblocked(), made.batch():
      jobs = [made.submit(Part(arguments)) for arguments in parts]
  except FailedJobError as e:
    raise UserError(
        f'Slurm refuses the jobs ({" ".join(str(e).split())[:500]}).') from e
  _say(jobs, folder)


def _say(jobs, folder):
  print(f'{len(jobs)} jobs: {" ".join(job.job_id for job in jobs)}; their logs '
        f'are in {folder}. --status shows the progress of the runs.',
        flush=True)


def _executor(folder, cluster, **more):
  """Returns an executor whose jobs find this program."""
  import submitit
  os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, (
      str(RUN.parent), os.environ.get('PYTHONPATH'))))
  return submitit.AutoExecutor(folder, cluster=cluster, **more)


def here(folder: pathlib.Path, parts: Sequence[Sequence[str]],
         show: Callable[[], object], *, cpus: int | None = None,
         gpus: int = 0) -> list[int]:
  """Runs a job of this machine for each part, all at once; returns exit codes.

  The jobs ignore the signals of the terminal. They stop, with checkpoints, once
  this process gets one or ends. Their logs get a folder of their own in
  `folder`. `show` is called every 0.2 seconds; for `cpus` and `gpus` see
  `share`.
  """
  folder.mkdir(parents=True, exist_ok=True)
  with files.lock_file(folder / _LOCK) as lock:
    # Waits for the jobs of an earlier command.
    fcntl.flock(lock, fcntl.LOCK_EX)
    # submitit would confuse jobs whose processes have the same number.
    logs = folder / time.strftime('%Y%m%d-%H%M%S')
    made = _executor(logs, 'local')
    made.update_parameters(timeout_min=_YEARS)
    # Signals stay blocked in the processes that submitit starts.
    jobs = [made.submit(Part(arguments, lock=(folder / _LOCK).resolve(),
                             **share(index, cpus, gpus)))
            for index, arguments in enumerate(parts)]
    _say(jobs, logs)
    while not (signals.reason() or all([job.done() for job in jobs])):
      show()
      time.sleep(0.2)
  codes = [BUG if job.exception() else job.result() for job in jobs]
  if signals.reason():
    say('The jobs have stopped: the same command resumes them.')
  return codes


def share(index: int, cpus: int | None, gpus: int) -> dict[str, Any]:
  """Returns the GPUs and CPU cores of the `index`-th job on this machine.

  Jobs get different cores and GPUs as long as there are enough. If `cpus` or
  `gpus` is not given, a job gets all of them.
  """
  visible = os.environ.get('CUDA_VISIBLE_DEVICES')
  cores = sorted(os.sched_getaffinity(0)) if hasattr(
      os, 'sched_getaffinity') and cpus else []
  if gpus:
    named = visible.split(',') if visible else [str(i) for i in range(1024)]
    visible = ','.join(
        named[(index * gpus + i) % len(named)] for i in range(gpus))
  return {'gpus': visible, 'cores': sorted({
      cores[(index * cpus + i) % len(cores)] for i in range(cpus)
  }) if cores else ()}
