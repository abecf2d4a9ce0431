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
  """Parses `20:30` to the updates 20 to 30 of `total`; the first is 1."""
  found = re.fullmatch(r'(\d{1,18}):(\d{1,18})', text, re.ASCII)
  first, last = map(int, found.groups()) if found else (0, 0)
  if not 1 <= first <= last <= total:
    raise UserError(
        f'--profile={text} is not possible: give the first and the last of the '
        f'updates 1 to {total} (config.train.steps), as in --profile=20:30.')
  return range(first, last + 1)


class Profile:
  """Traces the updates `steps` of the run in `folder`; none if it is empty."""

  def __init__(self, folder: pathlib.Path, steps: range):
    self._folder, self._steps, self._running = folder, steps, False

  def check(self, done: int) -> None:
    wanted = self._steps
    if wanted and wanted[0] <= done:
      raise UserError(
          f'{self._folder} has made {done} updates already, so --profile='
          f'{wanted[0]}:{wanted[-1]} is too late: trace later ones, or choose '
          'another --workdir.')

  @contextlib.contextmanager
  def update(self, step: int, wait: Callable[[], None]):
    """Context in which to dispatch an update; `wait` waits for the device."""
    if step not in self._steps:
      yield
      return
    if not self._running:
      wait()
      jax.profiler.start_trace(
          self._folder / 'profile', create_perfetto_trace=True)
      self._running = True
    with jax.profiler.StepTraceAnnotation(STEP, step_num=step):
      yield
    if step == self._steps[-1]:
      wait()
      self.close()

  def close(self) -> None:
    """Writes the trace, even if the run ends before the last traced update."""
    if self._running:
      self._running = False
      jax.profiler.stop_trace()
      say(f'The profile is in {self._folder / "profile"}: open it with '
          'TensorBoard and its plugin xprof, or perfetto_trace.json.gz at '
          'ui.perfetto.dev.')
