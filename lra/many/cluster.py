"""Runs a sweep as jobs: `run_lra.py --sweep=FILE --executor=slurm` or `local`.

Each job runs one part of the sweep, `--shard=i/n`, and all jobs publish into
one folder. Slurm jobs are an array, made by submitit. A job that is preempted
or near its time limit writes a checkpoint; submitit queues it again and it
resumes. Jobs of this machine (`Here`) are processes that the sweep waits for.
"""

import contextlib
import ctypes
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from lra.core import paths, signals
from lra.core.errors import UserError
from lra.core.terminal import say
from lra.many import runner

# How often a job may be queued again at its time limit: enough for years.
_TIMES = 10_000
# Seconds before the time limit at which a job is warned, so that it can save.
_WARNING_SECONDS = 90
_RUN = paths.ROOT / 'run_lra.py'
_PR_SET_CHILD_SUBREAPER = 36


class Part:
  """A part of a sweep, as submitit calls it in a job of Slurm.

  Args:
    arguments: arguments of run_lra.py.
  """

  def __init__(self, arguments: Sequence[str]):
    self.arguments = tuple(arguments)

  def __call__(self) -> int:
    """Runs the part; returns its exit code."""
    self._child = subprocess.Popen(
        [sys.executable, str(_RUN), *self.arguments])
    # submitit ignores SIGTERM. So it is passed on to the run, which then ends.
    before = signal.signal(signal.SIGTERM, lambda *_: self._stop())
    try:
      self._wait()
      return self._child.wait()
    finally:
      signal.signal(signal.SIGTERM, before)

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
  """Checks that jobs can be submitted.

  Raises:
    UserError: submitit or Slurm is not installed.
  """
  if executor == 'local':
    return
  if not importlib.util.find_spec('submitit'):
    raise UserError(f'--executor={executor} needs submitit, which is not '
                    f'installed: {paths.extra("slurm")}.')
  from submitit.slurm import slurm
  if not slurm.SlurmExecutor.affinity() > 0:
    raise UserError('--executor=slurm needs the command srun, which is not '
                    'installed: run this on a Slurm machine, or choose '
                    '--executor=local.')


def submit(folder: pathlib.Path, parts: Sequence[Sequence[str]], *,
           at_once: int, cpus: int | None = None, gpus: int = 0,
           partition: str | None = None, hours: float) -> list[str]:
  """Submits a job of Slurm for each part.

  Args:
    folder: folder of the jobs' logs; every node must see it.
    parts: arguments of run_lra.py for each job.
    at_once: number of jobs of an array that run at the same time.
    cpus: CPU cores of a job; None for the default of the cluster.
    gpus: GPUs of a job.
    partition: partition of the cluster; None for its default.
    hours: time limit of a job; after that it is queued again.

  Returns:
    The ids of the jobs.

  Raises:
    UserError: Slurm refuses them.
  """
  import submitit
  from submitit.core.utils import FailedJobError
  os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, (
      str(_RUN.parent), os.environ.get('PYTHONPATH'))))
  made = submitit.AutoExecutor(
      folder, cluster='slurm', slurm_max_num_timeout=_TIMES)
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
  return [job.job_id for job in jobs]


def _here(index, cpus, gpus):
  """Returns the CPU cores and GPUs of the `index`-th job on this machine.

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
  return {'environment': {'CUDA_VISIBLE_DEVICES': visible}, 'cores': sorted({
      cores[(index * cpus + i) % len(cores)] for i in range(cpus)
  }) if cores else ()}


class Here:
  """Jobs of this machine, each the leader of a process group of its own.

  A terminal sends its signals to the process group of the sweep only, so the
  sweep passes them on to the jobs. On Linux the jobs die with the sweep. Make
  this object only within `signals.later`.

  Args:
    folder: folder of the jobs' logs, `<name>.log`.
    parts: arguments of run_lra.py for each job, by its name.
    cpus: CPU cores of a job; None for all.
    gpus: GPUs of a job; 0 for all.
  """

  def __init__(self, folder: pathlib.Path, parts: Mapping[str, Sequence[str]],
               *, cpus: int | None = None, gpus: int = 0):
    folder.mkdir(parents=True, exist_ok=True)
    _adopt_orphans()
    self._jobs = []
    for index, (name, arguments) in enumerate(parts.items()):
      with open(folder / f'{name}.log', 'ab') as log:
        self._jobs.append(_started(
            arguments, log, **_here(index, cpus, gpus)))

  def wait(self, show: Callable[[], None]) -> list[int]:
    """Waits until no process of a job is left; returns their exit codes.

    Args:
      show: called every 0.2 seconds.
    """
    with signals.passed_on_to(self):
      while not all([_ended(job) for job in self._jobs]):
        show()
        time.sleep(0.2)
    if signals.reason():
      say('The jobs have stopped: the same command resumes them.')
    return [job.returncode for job in self._jobs]

  def send_signal(self, number: int) -> None:
    """Sends a signal to the leader of each job, which passes it on.

    If the leader has ended, its process group gets the signal.
    """
    for job in self._jobs:
      with contextlib.suppress(ProcessLookupError):
        if job.poll() is None:
          job.send_signal(number)
        else:
          os.killpg(job.pid, number)

  def kill(self) -> None:
    """Kills all processes of all jobs at once."""
    for job in self._jobs:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)


def _adopt_orphans():
  """Makes processes whose parent has died children of this one, on Linux."""
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _started(arguments, log, environment, cores):
  """Starts the process of a job and returns it."""
  def begin():
    runner.die_with_parent()
    if cores:
      os.sched_setaffinity(0, cores)

  return subprocess.Popen(
      [sys.executable, str(_RUN), *arguments], process_group=0,
      preexec_fn=begin, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
      env={name: value for name, value in {
          **os.environ, **environment}.items() if value is not None})


def _ended(job):
  """Returns whether no process of the job's group is left."""
  if job.poll() is None:
    return False
  with contextlib.suppress(ChildProcessError):
    while os.waitpid(-job.pid, os.WNOHANG)[0]:
      pass
  try:
    os.killpg(job.pid, 0)
  except (ProcessLookupError, PermissionError):  # zombies on macOS
    return True
  return False
