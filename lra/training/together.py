"""Trains runs of one config, with other seeds or values, in one process.

Runs with equal data or compiled steps share them. Some runs train at the same
time: a small model's steps are too short to keep all CPU cores busy.
"""

import pathlib
import time
import traceback
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import jax

from lra import tasks
from lra.errors import UserError
from lra.system import distributed, machine, signals
from lra.system.terminal import say
from lra.training import train
from lra.training.shared import Shared

Run = tuple[Any, pathlib.Path]  # a config and its run directory
MOST = 16  # runs at the same time, by default


def how_many(config) -> int:
  """Returns the default number of runs to train at the same time.

  On a CPU, mini tasks get several for each core, so that no core is idle before
  the last run has ended. Everything else gets one. It keeps an accelerator
  busy, and several full-length runs would have to share the memory.
  """
  small = tasks.get(config.task).mini and jax.default_backend() == 'cpu'
  return min(4 * machine.cpu_count(), MOST) if small else 1


def train_together(runs: list[Run], *, at_once: int,
                   max_minutes: float | None = None, **options
                   ) -> Iterator[tuple[Run, train.Result | None]]:
  """Trains all runs; yields each one when it ends, with its result.

  A run that fails does not end the others; its error is printed at once.

  Args:
    runs: configs with their run directories, which must differ.
    at_once: number of runs that train at the same time.
    max_minutes: stop all runs, with checkpoints, after so many minutes.
    **options: options of `train.train`, the same for each run.

  Yields:
    A run and the result of `train.train`; None if a stop came before the run
    began.

  Raises:
    UserError: the data of a task cannot be prepared.
    Exception: the error of the first run that failed, once all have ended; see
      `train.train`. A bug comes before errors that a user can fix.
  """
  at_once = min(at_once, len(runs))
  shared, errors = Shared(at_once, [config for config, _ in runs]), []
  deadline = (None if max_minutes is None
              else time.monotonic() + 60 * max_minutes)

  def one(config, folder):
    left = None if deadline is None else (deadline - time.monotonic()) / 60
    late = left is not None and left <= 0
    if distributed.gathered(bool(signals.reason()) or late).any():
      return None
    try:
      return train.train(config, folder, left, shared=shared, **options)
    except Exception as error:
      if distributed.several():
        raise  # the other processes may wait for this one
      errors.append(error)
      say(f'{folder}: {_told(error)}')
      return error

  for run, result in _ended(one, runs, at_once, shared):
    if not isinstance(result, Exception):
      yield run, result
  if errors:
    raise next((e for e in errors if not _mendable(e)), errors[0])


def _mendable(error):
  """Returns True if a user can fix an error of a run; otherwise it is a bug."""
  return isinstance(error, UserError) or machine.disk_full(error) or (
      isinstance(error, OSError) and error.filename is not None)


def _told(error):
  """Returns the message about a failed run; a bug has its traceback."""
  if _mendable(error):
    return str(error)
  trace = ''.join(traceback.format_exception(error))
  return f'internal error of lra or JAX.\n{trace.rstrip()}'


def _ended(one, runs, at_once, shared):
  """Yields runs as they end; uses the main thread if one runs at a time."""
  if at_once == 1:
    for run in runs:
      yield run, one(*run)
    return
  with signals.interrupting():  # other threads are not interrupted
    for config, _ in runs:
      shared.data(config)
  with signals.later('after their steps, with checkpoints'), (
      futures.ThreadPoolExecutor(at_once)) as pool:
    waiting = {}
    for run in runs:
      # jaxlib crashes if several threads call it first at the same time.
      while waiting and not shared.compiled.wait(0.05) and not all(
          future.done() for future in waiting):
        pass
      waiting[pool.submit(one, *run)] = run
    for done in futures.as_completed(waiting):
      yield waiting[done], done.result()
