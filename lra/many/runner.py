"""Runs a sweep, one process after another."""

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection

from lra.core import machine, paths, signals
from lra.core.errors import BUG
from lra.many import ahead, sweep
from lra.schema import result as result_lib
from lra.schema.result import Result

_RUN = paths.ROOT / 'run_lra.py'
_PR_SET_PDEATHSIG = 1
_ALL_MEMORY = 'XLA_PYTHON_CLIENT_PREALLOCATE'
_CORES = 4  # fewest CPU cores to compile a run on while another one trains
_COMPILING = 30.0  # seconds to compile a run, if no record has its time
_READY = 15.0  # seconds that a run takes to begin once it is compiled
# Fields that may change without compiling another step.
_GIVEN = ('--config.train.learning_rate=', '--config.train.weight_decay=')


def run(entries: list[sweep.Entry], *, extra: tuple[str, ...] = (),
        max_minutes: float | None = None,
        recorded: Callable[[Result], bool] = lambda result: True,
        ended: Collection[str] = result_lib.FINISHED,
        compiling: Callable[[sweep.Entry], float | None] = lambda entry: None,
        compile_ahead: bool = False, broken: set[int] | None = None) -> bool:
  """Runs the unfinished runs; returns whether a signal or a time limit came.

  A run that fails stops no other.

  Args:
    entries: the runs.
    extra: flags for each of them.
    max_minutes: stop, with a checkpoint, after so long. A run other than the
      first is not begun if the time left is too short to compile it.
    recorded, ended: see `left`.
    compiling: returns the seconds that a run compiles, None if unknown.
    compile_ahead: compile the next run while one trains.
    broken: set that receives the line number of each process that ended by a
      bug or a signal (`is_bug`).
  """
  stopped, begun, helper, env = False, set(), None, None
  deadline = (math.inf if max_minutes is None
              else time.monotonic() + 60 * max_minutes)
  if compile_ahead:
    env = _environment()
    helper = ahead.Helper((str(_RUN),), env, die_with_parent)
  groups = _groups(entries)
  with signals.later('once the run under way has stopped'):
    for place, (shape, group) in enumerate(groups, 1):
      for made, seeds in _calls(shape, group, recorded, ended):
        seconds = deadline - time.monotonic()
        if signals.reason() or seconds <= 0:
          return True
        ready = shape in begun or (helper and shape in helper.compiled)
        needed = _READY if ready else compiling(group[0]) or _COMPILING
        if begun and seconds < needed:
          print(f'{sweep.title(made)} is not begun: it needs about '
                f'{needed:.0f} seconds to compile, and {seconds:.0f} are left.',
                flush=True)
          return True
        begun.add(shape)
        limit = () if deadline == math.inf else (
            f'--max_minutes={seconds / 60:.4f}',)
        done = sum(e.status() in ended for e in entries)
        print(f'[{done} of {len(entries)} runs are finished] '
              f'{sweep.title(made)} seeds={seeds}', flush=True)
        if helper:
          _begin_next(helper, groups[place:], begun, recorded, ended,
                      extra)
        code = _call(*made, f'--seeds={seeds}', *extra, *limit,
                     deadline=deadline, env=env)
        if helper:
          helper.finish(deadline)
        late = time.monotonic() >= deadline
        stopped = stopped or late or code == signals.STOPPED
        if broken is not None and is_bug(code):
          broken.add(group[0].line)
        if stopped and not limit:
          return True  # a signal to the run, not this sweep's own time limit
    return stopped or bool(signals.reason())


def is_bug(code: int) -> bool:
  """Returns whether an exit code means a bug or a signal."""
  return code == BUG or code < 0


def may_compile_ahead() -> bool:
  """Returns whether compiling the next run does not slow the training one.

  A GPU needs an environment that lets runs share its memory; a CPU needs four
  cores. A TPU belongs to one process.
  """
  device = machine.accelerator()
  if device:
    return device != 'TPU' and _environment()[_ALL_MEMORY] in ('false', '0')
  return machine.cpu_count() >= _CORES


def _environment():
  """Returns the environment of runs, which lets runs share a GPU's memory.

  The user's own setting is kept.
  """
  taken = {_ALL_MEMORY: 'false'} if machine.accelerator() else {}
  return {**taken, **os.environ}


def _begin_next(helper, groups, begun, recorded, ended, extra):
  """Makes the helper compile the first run of these groups that needs it."""
  for shape, group in groups:
    for made, _ in _calls(shape, group, recorded, ended):
      if shape not in begun:
        helper.begin(shape, (
            *(f for f in made if not f.startswith('--grid=')),
            *(f for f in extra if f.startswith('--compile_cache='))))
        return


def _groups(entries):
  """Groups runs of a line that share a compiled step, as [(shape, entries)]."""
  groups = {}
  for entry in entries:
    shape = tuple(f for f in entry.config_flags if not f.startswith(_GIVEN))
    groups.setdefault((entry.line, shape), []).append(entry)
  return [(shape, group) for (_, shape), group in groups.items()]


def _calls(shape, group, recorded, ended):
  """Yields (flags, seeds) of the processes that make the runs left of a group.

  One process makes all configs of a line that share a compiled step and have
  the same seeds left.
  """
  by_seeds = {}
  for config in sweep.by_config(sweep.left(group, recorded, ended)):
    by_seeds.setdefault(','.join(e.seed for e in config), []).append(
        config[0].config_flags)
  for seeds, configs in by_seeds.items():
    if len(configs) == 1:
      yield configs[0], seeds
    else:
      yield (*shape, *map(_grid, configs)), seeds


def _grid(config_flags):
  changes = [f for f in config_flags if f.startswith(_GIVEN)]
  return f'--grid={sweep.title(changes)}'


def _call(*arguments, deadline=math.inf, env=None) -> int:
  """Runs run_lra.py; signals that end the sweep reach it too.

  At the deadline the process gets SIGTERM, and stops with a checkpoint. Its own
  --max_minutes would end later, because it counts from the process's start.
  """
  child = subprocess.Popen(
      [sys.executable, str(_RUN), *arguments], env=env,
      preexec_fn=die_with_parent)
  with signals.passed_on_to(child):
    try:
      return child.wait(None if deadline == math.inf else max(
          deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
      child.terminate()
      return child.wait()


def die_with_parent():
  """Makes the kernel kill this process if the sweep is killed."""
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
