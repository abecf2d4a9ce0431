"""Compiles the steps of a run before it begins: `run_lra.py --compile_only`.

The compiled steps are kept in --compile_cache, where the run finds them. A
sweep compiles its next run while another one trains.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from lra.core import signals
from lra.core.terminal import say

NICENESS = 10  # lowers the priority of compiling below training


def compile_steps(experiment) -> None:
  """Compiles the training and the evaluation step of an `Experiment`.

  A run that was begun keeps its dtype and sizes.

  Raises:
    UserError: the experiment cannot run here; the message names the field.
  """
  from lra.run import program, rundir
  began = rundir.environment(experiment.folder)
  made, _ = program.make(
      experiment, dtype=began.get('dtype'), before=began).fit_train()
  made.fit_eval()


class Helper:
  """Compiles the steps of one run at a time in another process.

  Attributes:
    compiled: keys of the configs that were compiled.
  """

  def __init__(self, command: tuple[str, ...], env: Mapping[str, str],
               preexec: Callable[[], None] | None = None):
    self._command, self._env, self._preexec = command, env, preexec
    self._child, self._key, self.compiled = None, None, set()

  def begin(self, key, flags: tuple[str, ...]) -> None:
    """Begins to compile a config, unless it is compiled already.

    Args:
      key: equal for configs that share their compiled steps.
      flags: the flags of the config.
    """
    if key in self.compiled:
      return
    self._key = key
    self._child = subprocess.Popen(
        ['nice', f'-n{NICENESS}', sys.executable, *self._command, *flags,
         '--compile_only'],
        env=self._env, preexec_fn=self._preexec, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

  def finish(self, deadline: float) -> None:
    """Waits until the config is compiled; kills it at a deadline or a signal.

    Compiling the same steps twice at once would take longer than waiting.

    Args:
      deadline: a time of `time.monotonic`.
    """
    if self._child is None:
      return
    while self._child.poll() is None:
      if signals.reason() or time.monotonic() >= deadline:
        self._child.kill()
      time.sleep(0.05)
    if self._child.returncode == 0:
      self.compiled.add(self._key)
    elif not signals.reason() and time.monotonic() < deadline:
      say('The next run could not be compiled ahead: it compiles its steps '
          'when it begins.')
    self._child = None
