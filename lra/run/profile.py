"""Traces some updates: `--profile=FIRST:LAST`."""

import contextlib
import pathlib
import re
from collections.abc import Callable

import jax

from lra.core.errors import UserError
from lra.core.terminal import say

STEP = 'update'  # name of an update in a trace; its number is `step_num`


def steps(text: str, total: int) -> range:
  """Parses `20:30` to the updates 20 to 30; the first of a run is 1.

  Args:
    text: the value of --profile.
    total: updates of the run.

  Raises:
    UserError: the text is not of that form, or the run has no such updates.
  """
  found = re.fullmatch(r'(\d{1,18}):(\d{1,18})', text, re.ASCII)
  first, last = map(int, found.groups()) if found else (0, 0)
  if not 1 <= first <= last <= total:
    raise UserError(
        f'--profile={text} is not possible: give the first and the last of the '
        f'updates 1 to {total} (config.train.steps), as in --profile=20:30.')
  return range(first, last + 1)


def check(wanted: range, done: int, folder: pathlib.Path) -> None:
  """Checks that a run has made none of the updates to trace.

  Args:
    wanted: the updates from `steps`; empty for no trace.
    done: updates that the run has made.
    folder: its directory.

  Raises:
    UserError: the run has made some of them.
  """
  if wanted and wanted[0] <= done:
    raise UserError(
        f'{folder} has made {done} updates already, so --profile={wanted[0]}:'
        f'{wanted[-1]} is too late: trace later ones, or choose another '
        '--workdir.')


class Profile:
  """Traces updates of a run.

  Args:
    folder: the folder of the trace.
    steps: the updates to trace; empty for none.
    wait: waits until the device is idle; called before the trace begins and
      before it ends.
  """

  def __init__(self, folder: pathlib.Path, steps: range,
               wait: Callable[[], None]):
    self._folder, self._steps, self._wait = folder, steps, wait
    self._running = False

  @contextlib.contextmanager
  def update(self, step: int):
    """Returns a context in which to dispatch update `step`."""
    if step not in self._steps:
      yield
      return
    if not self._running:
      self._wait()
      jax.profiler.start_trace(self._folder, create_perfetto_trace=True)
      self._running = True
    with jax.profiler.StepTraceAnnotation(STEP, step_num=step):
      yield
    if step == self._steps[-1]:
      self._wait()
      self.close()

  def close(self) -> None:
    """Writes the trace, even if the run ends before the last traced update."""
    if self._running:
      self._running = False
      jax.profiler.stop_trace()
      say(f'The profile is in {self._folder}: open it with TensorBoard and its '
          'plugin xprof, or perfetto_trace.json.gz at ui.perfetto.dev.')
