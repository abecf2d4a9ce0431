"""Runs of one config, of other seeds or with other values, in one process.

Where these are the same they share data and compiled steps. Some train at
the same time: a small model's steps are too short to keep all cores of a
processor busy.
"""

import pathlib
import time
import traceback
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import jax

from lra import distributed, machine, signals, tasks
from lra.errors import UserError
from lra.terminal import say
from lra.training import train
from lra.training.shared import Shared

Run = tuple[Any, pathlib.Path]  # a config and its run directory
MOST = 16  # at the same time, unless more are asked for


def how_many(config) -> int:
  """How many runs to train at the same time: more than one of mini tasks only.

  On a processor several for each core, so that none is idle before the last
  has ended; other devices are kept busy by one, and full-length runs would
  share the memory.
  """
  small = tasks.get(config.task).mini and jax.default_backend() == 'cpu'
  return min(4 * machine.cpu_count(), MOST) if small else 1


def train_together(runs: list[Run], *, at_once: int,
                   max_minutes: float | None = None, **options
                   ) -> Iterator[tuple[Run, train.Result | None]]:
  """Trains all runs; gives each when it ends, with its result.

  One that fails does not end the others; what is wrong is said at once.

  Args:
    runs: each in a directory of its own.
    at_once: how many train at the same time.
    max_minutes: stop all of them, with checkpoints, after so long.
    **options: of `train.train`, the same for each.

  Yields:
    A run and what `train.train` gives; None for one that a stop kept from
    being begun.

  Raises:
    UserError: the data of a task cannot be prepared.
    Exception: what the first of the runs that failed raised, once all have
      ended; see `train.train`. A bug comes before what a user can mend.
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
        raise  # the others may not have failed, and wait for this process
      errors.append(error)
      say(f'{folder}: {_told(error)}')
      return error

  for run, result in _ended(one, runs, at_once, shared):
    if not isinstance(result, Exception):
      yield run, result
  if errors:
    raise next((e for e in errors if not _mendable(e)), errors[0])


def _mendable(error):
  """Whether a user can mend what a run has raised; else it is a bug."""
  return isinstance(error, UserError) or machine.disk_full(error) or (
      isinstance(error, OSError) and error.filename is not None)


def _told(error):
  """What is said of a run that failed: of a bug with its traceback."""
  if _mendable(error):
    return str(error)
  trace = ''.join(traceback.format_exception(error))
  return f'internal error of lra or JAX.\n{trace.rstrip()}'


def _ended(one, runs, at_once, shared):
  """Runs as they end; in the main thread where there is one at a time."""
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
      # Threads that call jaxlib for the first time at once crash in it.
      while waiting and not shared.compiled.wait(0.05) and not all(
          future.done() for future in waiting):
        pass
      waiting[pool.submit(one, *run)] = run
    for done in futures.as_completed(waiting):
      yield waiting[done], done.result()
