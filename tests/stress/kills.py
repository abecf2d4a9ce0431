"""Signals at random moments, which the seed determines."""

import os
import random
import signal
import subprocess
import time

ACTIONS = ('KILL', 'KILL', 'TERM', 'INT', 'INT INT', 'HUP', 'STOP CONT')
# Exit codes of a signal that arrives before the command's first line runs. Only
# such a signal may raise Python's KeyboardInterrupt.
_UNHEARD = (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)


def plan(seed: int, number: int) -> list[tuple[str, float]]:
  """Returns the actions of a round, each with the delay before it.

  A delay is a fraction of the undisturbed duration.
  """
  rng = random.Random(f'{seed} {number}')
  return [(rng.choice(ACTIONS), rng.uniform(0, 0.8))
          for _ in range(rng.randint(3, 6))]


def act(process: subprocess.Popen, action: str) -> None:
  """Sends the signals of `action`; SIGINT goes to the whole process group."""
  for name in action.split():
    number = signal.Signals[f'SIG{name}']
    try:
      if name == 'INT':
        os.killpg(process.pid, number)
      else:
        process.send_signal(number)
    except ProcessLookupError:
      return
    if name != action:
      time.sleep(0.3)


def complaint(action: str, code: int, errors: str) -> str:
  """Returns what is wrong with the end of a command, '' if nothing is.

  Args:
    action: the last action before the end.
    code: exit code of the command.
    errors: stderr of the command.
  """
  allowed = {
      'KILL': (-signal.SIGKILL, 75), 'STOP CONT': (0, 75),
      'INT INT': (0, 75, 130, *_UNHEARD)}.get(action, (0, 75, *_UNHEARD))
  if errors.rstrip().endswith('\nKeyboardInterrupt') and 'INT' in action:
    return ''
  if 'Traceback' in errors:
    return 'a traceback'
  if code not in allowed:
    return f'exit code {code}'
  return ''
