"""Trains a file of runs in jobs of Slurm, by submitit, or of this machine.

Each job trains one part of the runs, and all jobs publish into one folder. A
job of Slurm that is preempted or near its time limit writes a checkpoint;
submitit queues it again and it resumes. Jobs of this machine stop once the
command that started them ends, since it holds the other end of their stdin.
"""

import contextlib
import fcntl
import importlib.util
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from lra.core import files, paths, signals
from lra.core.errors import UserError
from lra.core.terminal import say
from lra.many.processes import RUN

# How often a job may be queued again at its time limit: enough for years.
_TIMES = 10_000
# Seconds before the time limit at which a job is warned, so that it can save.
_WARNING_SECONDS = 90
_LOCK = '.running'


class Part:
  """A part of the runs, arguments of run_lra.py, as submitit calls it."""

  def __init__(self, arguments: Sequence[str]):
    self.arguments = tuple(arguments)
    self._child = None

  def __call__(self) -> int:
    """Runs the part; returns its exit code."""
    # submitit ignores SIGTERM. So it is passed on to the run, which then ends.
    before = signal.signal(signal.SIGTERM, lambda *_: self._stop())
    self._child = subprocess.Popen(
        [sys.executable, str(RUN), *self.arguments], stdin=subprocess.DEVNULL)
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


def check() -> None:
  """Raises UserError if submitit or Slurm is not installed."""
  if not importlib.util.find_spec('submitit'):
    raise UserError('--executor=slurm needs submitit, which is not '
                    f'installed: {paths.extra("slurm")}.')
  from submitit.slurm import slurm
  if not slurm.SlurmExecutor.affinity() > 0:
    raise UserError('--executor=slurm needs the command srun, which is not '
                    'installed: run this on a Slurm machine, or choose '
                    '--executor=local.')


def submit(folder: pathlib.Path, parts: Sequence[Sequence[str]], *,
           at_once: int, cpus: int | None = None, gpus: int = 0,
           partition: str | None = None, hours: float,
           shown: bool = False) -> None:
  """Submits a job of Slurm for each part, the arguments of run_lra.py.

  Every node must see the `folder` of logs. `at_once` jobs run at the same time,
  each with `cpus` and `gpus`, and are queued again after so many hours. If
  `shown`, the script for sbatch is only printed.

  Raises:
    UserError: Slurm refuses them.
  """
  from submitit.core.utils import FailedJobError
  from submitit.slurm import slurm
  os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, (
      str(RUN.parent), os.environ.get('PYTHONPATH'))))
  executor = type('Shown', (slurm.SlurmExecutor,), {
      'affinity': classmethod(lambda cls: 1)}) if shown else slurm.SlurmExecutor
  made = executor(folder, max_num_timeout=_TIMES)
  made.update_parameters(
      time=max(round(60 * hours), 1), job_name='lra',
      signal_delay_s=_WARNING_SECONDS, array_parallelism=at_once,
      **{name: value for name, value in {
          'gpus_per_node': gpus, 'cpus_per_task': cpus,
          'partition': partition}.items() if value})
  if shown:
    count = {'map_count': len(parts)} if len(parts) > 1 else {}
    print(slurm._make_sbatch_string(
        made._submitit_command_str, made.folder, **count, **made.parameters))
    for i, arguments in enumerate(parts):
      print(f'# job {i}: {shlex.join([*paths.program(), *arguments])}')
    return
  try:
    with signals.unblocked(), made.batch():
      jobs = [made.submit(Part(arguments)) for arguments in parts]
  except FailedJobError as e:
    raise UserError(
        f'Slurm refuses the jobs ({" ".join(str(e).split())[:500]}).') from e
  _say((job.job_id for job in jobs), folder)


def _say(numbers: Iterable[str], folder):
  numbers = list(numbers)
  print(f'{len(numbers)} jobs: {" ".join(numbers)}; their logs are in '
        f'{folder}. --status shows the progress of the runs.', flush=True)


def here(folder: pathlib.Path, parts: Sequence[Sequence[str]],
         show: Callable[[], object], *, cpus: int | None = None,
         gpus: int = 0) -> list[int]:
  """Runs a job of this machine for each part, all at once; returns exit codes.

  The jobs get no signals of the terminal. They stop, with checkpoints, once
  this process gets one or ends. Their logs get a folder of their own in
  `folder`. `show` is called every 0.2 seconds; for `cpus` and `gpus` see
  `share`.
  """
  logs = folder / time.strftime('%Y%m%d-%H%M%S')
  logs.mkdir(parents=True, exist_ok=True)
  jobs = []
  with files.lock_file(folder / _LOCK) as lock:
    # Waits for the jobs of an earlier command, which hold the lock, too.
    fcntl.flock(lock, fcntl.LOCK_EX)
    for index, arguments in enumerate(parts):
      visible, cores = share(index, cpus, gpus)
      with open(logs / f'{index + 1}.log', 'wb') as log:
        jobs.append(subprocess.Popen(
            [sys.executable, str(RUN), *arguments, '--until_eof'],
            stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True, pass_fds=[lock.fileno()],
            env=os.environ | visible))
      if cores:
        os.sched_setaffinity(jobs[-1].pid, cores)
  _say((str(job.pid) for job in jobs), logs)
  while not signals.reason() and any(job.poll() is None for job in jobs):
    show()
    time.sleep(0.2)
  for job in jobs if signals.reason() else ():
    job.terminate()
  codes = [job.wait() for job in jobs]
  if signals.reason():
    say('The jobs have stopped: the same command resumes them.')
  return codes


def share(index: int, cpus: int | None, gpus: int
          ) -> tuple[dict[str, str], list[int]]:
  """Returns the GPUs, as a variable, and the CPU cores of the `index`-th job.

  Jobs get different cores and GPUs as long as there are enough. If `cpus` or
  `gpus` is not given, a job gets all of them.
  """
  visible, cores = {}, []
  if cpus and hasattr(os, 'sched_getaffinity'):
    known = sorted(os.sched_getaffinity(0))
    cores = sorted({known[(index * cpus + i) % len(known)]
                    for i in range(cpus)})
  if gpus:
    given = os.environ.get('CUDA_VISIBLE_DEVICES')
    named = given.split(',') if given else [str(i) for i in range(1024)]
    visible = {'CUDA_VISIBLE_DEVICES': ','.join(
        named[(index * gpus + i) % len(named)] for i in range(gpus))}
  return visible, cores
