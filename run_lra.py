"""Trains a model on a task, or regenerates the leaderboard; see README.md."""

from lra.core import environment, signals, streams


def run() -> None:
  """Runs the command `lra`, which is `python run_lra.py`."""
  environment.keep_freed_memory()  # before any thread has memory of its own
  streams.keep()
  signals.listen()  # before the slow imports
  from lra.cli import main
  main.run()


if __name__ == '__main__':
  run()
