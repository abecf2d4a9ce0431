"""Signals at random moments, the same ones for the same seed."""

import os
import random
import signal
import subprocess
import time

ACTIONS = ('KILL', 'KILL', 'TERM', 'INT', 'INT INT', 'HUP', 'STOP CONT')
# What ends the interpreter before the first line of the command is run. Later
# no signal raises the KeyboardInterrupt that Python then shows.
_UNHEARD = (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)


def plan(seed: int, number: int) -> list[tuple[str, float]]:
  """Actions of a round, and when: in parts of the undisturbed duration."""
  rng = random.Random(f'{seed} {number}')
  return [(rng.choice(ACTIONS), rng.uniform(0, 0.8))
          for _ in range(rng.randint(3, 6))]


def act(process: subprocess.Popen, action: str) -> None:
  """Does to a process, or as a terminal does to its group, what is said."""
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
  """What is wrong with how a command ended, '' if nothing is.

  Args:
    action: the last one.
    code: exit code.
    errors: what it wrote to stderr.
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
