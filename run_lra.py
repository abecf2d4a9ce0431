"""Trains a model on a task, or regenerates the leaderboard; see README.md."""

from lra.core import signals, streams


def run() -> None:
  """Runs the command `lra`, which is `python run_lra.py`."""
  streams.keep()
  signals.listen()  # before the slow imports
  from lra.cli import main
  main.run()


if __name__ == '__main__':
  run()
