"""Trains a model on a task, or regenerates the leaderboard; see README.md."""

import sys

from lra.core import environment, errors, signals, streams


def run() -> None:
  """Runs the command `lra`, which is `python run_lra.py`."""
  environment.keep_freed_memory()  # before any thread has memory of its own
  streams.keep()
  signals.listen()  # before the slow imports
  try:
    from lra.cli import main
  except (ImportError, MemoryError) as error:
    if not (what := environment.blamed(error)):
      raise
    print(f'error: {what}', file=sys.stderr)
    sys.exit(errors.USER_ERROR)
  main.run()


if __name__ == '__main__':
  run()
