"""Trains experiments: loads or resumes a run, trains, validates and scores."""

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures

import jax

from lra.core import distributed, machine, signals
from lra.core.distributed import is_leader, is_multiprocess
from lra.core.errors import UserError
from lra.core.terminal import TIME_LIMIT, StopRequest, bar, say
from lra.run import scoring
from lra.run.experiment import Experiment
from lra.run.process_cache import ProcessCache
from lra.run.trainer import Diverged, Trainer
from lra.schema.result import Result

MOST = 16  # most runs at the same time, by default


def train(experiment: Experiment, max_minutes: float | None = None,
          log: Sequence[str] = (), profiled: range = range(0),
          recorded: bool = False, shared: ProcessCache | None = None,
          tested: bool = True,
          watch: Callable[[int, float], str] | None = None,
          announced: str = '') -> Result:
  """Trains to the end, a stop or a failure, and scores; resumes a stopped run.

  Args:
    max_minutes: stop, with a checkpoint, after so many minutes.
    log: names of writers besides metrics.jsonl, of `writers.WRITERS`.
    profiled: updates, from 1, to trace in `profile/`.
    recorded: whether the run will be published.
    shared: data and compiled steps of other runs of this process.
    tested: False ends the run before its test, with the status 'validated'.
      The test split is not read until a call with True resumes the run.
    watch: called after each validation but the last, with the step and the
      accuracy; returns a reason to stop, or ''.
    announced: line to print before training, once for all runs of a process.
  """
  t = experiment.config.train
  with StopRequest(max_minutes) as own, contextlib.closing(Trainer(
      experiment, log, profiled if is_leader() else range(0), recorded,
      shared)) as run:
    status, test = 'stopped', None
    state, stop = run.restore(), run.listen(own)
    begun = run.step, run.counters.validated_step
    try:
      run.compile()
      if announced:
        (shared or ProcessCache()).once(announced, lambda: say(announced))
      with bar(total=t.steps, done=run.step, what=run.title) as shown:
        while not stop.reason:
          if run.validation_due() and scoring.validate(run, state, stop):
            run.save(state)
            if watch and run.step < t.steps:
              own.ask(watch(run.step, run.counters.last_val['accuracy']))
          if run.step == t.steps or stop.reason:
            break
          if stop.checkpoint(
              due=run.minutes_since_save() > t.checkpoint_minutes):
            run.save(state)
          state = run.update(state, run.next_batch())
          shown.update()
          if run.step % t.log_every == 0 or run.step == t.steps:
            state, text = run.log(state)
            shown.set_postfix_str(text, refresh=False)
      if not stop.reason and tested:
        test = scoring.test(run, state, stop)
      if test is not None:
        status = 'ok'
      elif not stop.reason and not tested:
        status = 'validated'
      else:
        run.save(state)
        say(f'{run.title}: stopped at step {run.step} ({stop.reason}): the '
            'same command continues from here.')
        if stop.reason == TIME_LIMIT and begun == (
            run.step, run.counters.validated_step):
          say(f'{run.title}: no training step, validation or test finished '
              'within --max_minutes. If this happens again, increase '
              '--max_minutes.')
    except Diverged:
      status = 'diverged'
    except jax.errors.JaxRuntimeError as e:
      status = 'oom'
      if not machine.out_of_memory(e):
        if is_multiprocess() and distributed.lost(e):
          distributed.abandon(e)
        raise
    finally:
      state = None  # frees the memory, even if an error keeps this frame
    return run.finish(status, test)


def how_many(experiment: Experiment) -> int:
  """Returns the default number of runs to train at the same time.

  On a CPU, mini tasks get several for each core. Everything else gets one,
  which keeps an accelerator busy.
  """
  small = experiment.task.mini and jax.default_backend() == 'cpu'
  return min(4 * machine.cpu_count(), MOST) if small else 1


def train_many(runs: list[Experiment], *, at_once: int,
               max_minutes: float | None = None, **options
               ) -> Iterator[tuple[Experiment, Result | None]]:
  """Trains runs, `at_once` at the same time; yields each with its result.

  Runs with equal data or compiled steps share them. A small model's steps are
  too short to keep all CPU cores busy, so several train at once. A run that
  fails does not end the others; its error is printed at once, and raised at the
  end. A bug takes precedence over errors that a user can fix. The result is
  None if a stop came before the run began.
  """
  at_once = min(at_once, len(runs))
  shared, errors = ProcessCache(at_once, runs), []
  deadline = (None if max_minutes is None
              else time.monotonic() + 60 * max_minutes)

  def one(run):
    left = None if deadline is None else (deadline - time.monotonic()) / 60
    late = left is not None and left <= 0
    if distributed.all_gather(bool(signals.reason()) or late).any():
      return None
    try:
      return train(run, left, shared=shared, **options)
    except Exception as error:
      if distributed.is_multiprocess():
        raise  # in a next run it would let the other processes wait
      errors.append(error)
      say(f'{run.folder}: {_told(error)}')
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
  if _mendable(error):
    return str(error)
  trace = ''.join(traceback.format_exception(error))
  return f'internal error of lra or JAX.\n{trace.rstrip()}'


def _ended(one, runs, at_once, shared):
  if at_once == 1:
    for run in runs:
      yield run, one(run)
    return
  with signals.interrupting():  # other threads are not interrupted
    for run in runs:
      shared.data(run)
  with signals.later('after their steps, with checkpoints'), (
      futures.ThreadPoolExecutor(at_once)) as pool:
    waiting = {}
    for run in runs:
      # jaxlib crashes if several threads call it first at the same time.
      while waiting and not shared.compiled.wait(0.05) and not all(
          future.done() for future in waiting):
        pass
      waiting[pool.submit(one, run)] = run
    for done in futures.as_completed(waiting):
      yield waiting[done], done.result()
