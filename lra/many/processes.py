"""Trains the runs of a file, one process after another.

A process trains all runs of a config and task that share a compiled step. So
its peak memory is that of these runs, and a crash ends no others. While one
process trains, others compile the next runs.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from lra.board import publish, rows
from lra.core import machine, paths, signals
from lra.core.errors import BUG, UserError
from lra.core.terminal import say
from lra.many import choose
from lra.many import runs as runs_lib
from lra.many.execute import Options
from lra.many.runs import Run, Unit
from lra.schema import result as result_lib

RUN = paths.ROOT / 'run_lra.py'
STDIN = '-'  # the file of runs that a process reads from stdin
_ALL_MEMORY = 'XLA_PYTHON_CLIENT_PREALLOCATE'
_CORES = 4  # fewest CPU cores to compile a run on while another one trains
_AHEAD = 8  # most runs that compile at the same time
_NICENESS = 10  # lowers the priority of compiling below training
_COMPILING = 30.0  # seconds to compile a run, if no record has its time
_READY = 15.0  # seconds that a run takes to begin once it is compiled
# Fields that may change without compiling another step.
_GIVEN = ('--config.train.learning_rate=', '--config.train.weight_decay=')


def left(runs: Iterable[Run], options: Options) -> list[Run]:
  """Returns the runs that are not finished, or whose result is not recorded.

  A damaged result counts as unfinished, and the run itself reports it. A run
  that was killed before it was published is run again, which publishes it.
  """
  results = ((run, run.result()[0]) for run in runs)
  return [run for run, result in results if not (
      result is not None and result.finished and options.recorded(result))]


class Processes:
  """Trains runs in processes of their own.

  The `passed` flags of `runs` go to each process. With `cache`, the folder for
  compiled programs, the next runs are compiled while others train. `compiling`
  returns the seconds that a run compiles, None if unknown: if the time left is
  shorter, a run is not begun, unless it is the first.

  Attributes:
    stopped: whether a signal or the time limit came.
    broken: the runs of processes that ended by a bug or a signal.
  """

  def __init__(self, options: Options, passed: Sequence[str] = (),
               cache: str = '',
               compiling: Callable[[Run], float | None] = lambda run: None):
    self._options, self._passed, self._compiling = options, passed, compiling
    self._cache = cache if cache and may_compile_ahead() else ''
    self._begun, self._compiled, self._helpers = set(), set(), {}
    self.stopped, self.broken = False, set()

  def train(self, runs: Sequence[Run]) -> None:
    """Trains the unfinished runs of a file; one that fails stops no other."""
    with signals.later('once the run under way has stopped'):
      try:
        self._train([run for run in runs if not run.searched],
                    lambda some: left(some, self._options))
        for unit in runs_lib.units(runs):
          if unit.searched and not self.stopped:
            self._search(unit)
      finally:
        for child in self._helpers.values():
          child.kill()
          child.wait()

  def _search(self, unit):
    """Trains the settings of a search, then all seeds of the chosen one."""
    print(f'{unit.title}: best of {len(unit.settings)} settings', flush=True)
    self._train(unit.search, _searching, '--notest', '--norecord')
    chosen = None if self.stopped else choose.choice(unit)
    if chosen is None:
      return  # a run of the search has failed
    records = self._options.records('searched')
    self._train(chosen.runs, _unfinished, '--norecord',
                *['--record_later'] * bool(records))
    results = [result.model_copy(update={'search': chosen.search})
               for run in chosen.runs
               if (result := run.result()[0]) and result.finished]
    new = [result for result in results if not self._options.recorded(result)]
    if records and new:
      publish.publish_all(new, self._options.place,
                          replace=self._options.replace)

  def _train(self, runs, todo, *more):
    """Trains runs; `todo` returns those of some runs that are left."""
    groups = _groups(runs)
    for place, (shape, group) in enumerate(groups, 1):
      now = todo(group)
      if not now:
        continue
      self._end_helper(shape)
      seconds = self._options.deadline - time.monotonic()
      needed = _READY if shape in self._begun | self._compiled else (
          self._compiling(group[0]) or _COMPILING)
      self.stopped = bool(signals.reason()) or seconds <= 0
      if not self.stopped and self._begun and seconds < needed:
        print(f'{runs_lib.title(shape)} is not begun: it needs about '
              f'{needed:.0f} seconds to compile, and {seconds:.0f} are left.',
              flush=True)
        self.stopped = True
      if self.stopped:
        return
      self._begun.add(shape)
      print(f'[{len(runs) - len(todo(runs))} of {len(runs)} runs are finished] '
            f'{runs_lib.title(shape)} {_varied(now)}', flush=True)
      if self._cache:
        self._compile_ahead(groups[place:], todo)
      code = self._call(now, more)
      if is_bug(code):
        self.broken.update(now)
      if code == signals.STOPPED or signals.reason() or (
          time.monotonic() >= self._options.deadline):
        self.stopped = True
        return

  def _call(self, runs, more):
    """Trains runs in a process; signals that end this one reach it too.

    At the deadline the process gets SIGTERM, and stops with a checkpoint. Its
    own --max_minutes would end later, since it counts from its start.
    """
    minutes = self._options.minutes
    limit = [] if minutes is None else [f'--max_minutes={minutes:.4f}']
    child = subprocess.Popen(
        [sys.executable, str(RUN), 'runs', STDIN, *self.flags(more), *limit],
        env=_environment() if self._cache else None, stdin=subprocess.PIPE)
    # The pipe stays open: its end tells the child that this process is gone.
    with signals.passed_on_to(child), child.stdin as pipe:
      with contextlib.suppress(BrokenPipeError):
        pipe.write(json.dumps([run.flags for run in runs]).encode() + b'\n')
        pipe.flush()
      try:
        return child.wait(None if minutes is None else 60 * minutes)
      except subprocess.TimeoutExpired:
        child.terminate()
        return child.wait()

  def flags(self, more: Sequence[str] = ()) -> list[str]:
    """Returns the flags of a process; those of `more` overrule others."""
    return [*(flag for flag in self._passed if not (
        flag == '--record' and '--norecord' in more)), *more]

  def _compile_ahead(self, groups, todo):
    """Begins to compile the first of these groups that need it.

    Only a GPU leaves the CPU to several of them.
    """
    count = min(_AHEAD, machine.cpu_count() // 2) if (
        machine.accelerator()) else 1
    for shape, group in groups:
      if len(self._helpers) >= max(count, 1):
        return
      if shape not in self._begun | self._compiled | {*self._helpers} and (
          todo(group)):
        self._helpers[shape] = subprocess.Popen(
            ['nice', f'-n{_NICENESS}', sys.executable, str(RUN),
             *group[0].flags, '--compile_only',
             f'--compile_cache={self._cache}'],
            env=_environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

  def _end_helper(self, shape):
    """Waits until these runs are compiled, or a stop comes.

    Compiling the same steps twice at once would take longer than waiting.
    """
    child = self._helpers.pop(shape, None)
    while child and child.poll() is None:
      if signals.reason() or time.monotonic() >= self._options.deadline:
        child.kill()
      time.sleep(0.05)
    if child and child.returncode == 0:
      self._compiled.add(shape)
    elif child and child.returncode > 0:
      say('The next run could not be compiled ahead: it compiles its steps '
          'when it begins.')


def _unfinished(runs, ends=result_lib.FINISHED):
  return [run for run in runs if run.status() not in ends]


def _searching(runs):
  return _unfinished(runs, result_lib.SEARCHED)


def _varied(runs):
  """Returns the seeds of runs, and the number of their settings if several."""
  settings = len({run.setting for run in runs})
  return (f'seeds={",".join(dict.fromkeys(run.seed for run in runs))}'
          + f', {settings} settings' * (settings > 1))


def _groups(runs):
  """Groups runs of an entry that share a compiled step, as [(shape, runs)]."""
  groups = {}
  for run in runs:
    shape = tuple(f for f in run.setting if not f.startswith(_GIVEN))
    groups.setdefault((run.entry, shape), []).append(run)
  return [(shape, group) for (_, shape), group in groups.items()]


def from_stdin() -> list[tuple[str, ...]]:
  """Returns the flags of the runs that `Processes` gives to this process.

  From then on, this process is killed if the other one ends.
  """
  with open(0, 'rb', buffering=0, closefd=False) as stdin:
    line = stdin.readline()
  try:
    found = [tuple(flags) for flags in json.loads(line)]
  except ValueError as e:
    raise UserError(f'Runs from stdin cannot be read ({e}): name a file '
                    'instead.') from e
  end_with_stdin(signal.SIGKILL)
  return found


def end_with_stdin(number: int) -> None:
  """Sends this process a signal once the other end of its stdin is closed."""
  def watch():
    while os.read(0, 1):
      pass
    os.kill(os.getpid(), number)

  threading.Thread(target=watch, daemon=True).start()


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


def exit_code(runs: Sequence[Run], options: Options, stopped: bool,
              broken: Collection[Run]) -> int:
  """Returns 0 if no run is left, `signals.STOPPED` after a stop, else BUG.

  A message on stderr names the configs of the runs that have failed.

  Raises:
    UserError: all runs that are left have failed by errors of users.
  """
  units = runs_lib.units(runs)
  found = [run for unit in units for run in unfinished(unit, options)]
  total = sum(len(choose.wanted(unit)) for unit in units)
  if stopped or not found:
    return signals.STOPPED if found else 0
  bugs = [run for run in found if run in broken]
  said = ' '.join(
      f'{len(some)} of {total} runs {"has" if len(some) == 1 else "have"} '
      f'{what} ({rows.listed(dict.fromkeys(run.config for run in some))}): '
      f'{advice}.'
      for some, what, advice in (
          ([run for run in found if run not in broken], 'failed',
           'correct the error of each, and repeat the command'),
          (bugs, 'ended by an internal error or a signal',
           'the configs are not at fault; repeat the command, and report the '
           'traceback if it comes again')) if some)
  if not bugs:
    raise UserError(said)
  print(f'error: {said}', file=sys.stderr)
  return BUG


def unfinished(unit: Unit, options: Options) -> list[Run]:
  """Returns the runs of a unit that are left, as far as they are known."""
  if not unit.searched:
    return left(unit.runs, options)
  chosen = choose.choice(unit)
  return _searching(unit.search) if chosen is None else (
      _unfinished(chosen.runs))
