"""Trains a model on a task, or regenerates the leaderboard; see README.md."""

import sys

from lra.core import environment, errors, signals, streams


def run() -> None:
  """Runs the command `lra`, which is `python run_lra.py`."""
  environment.keep_freed_memory()  # before any thread has memory of its own
  streams.keep()
  signals.listen()  # before the slow imports
  try:
    environment.check_limits()  # libraries would hang or end the process
  except errors.UserError as e:
    print(f'error: {e}', file=sys.stderr)
    sys.exit(errors.USER_ERROR)
  from lra.cli import main
  main.run()


if __name__ == '__main__':
  run()
