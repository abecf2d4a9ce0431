"""Trains a model on a task, or regenerates the leaderboard; see README.md."""

from lra import signals, streams


def run() -> None:
  """The command `lra`, which is `python run_lra.py`."""
  streams.keep()
  signals.listen()
  from lra import main  # takes long: signals are heard by then
  main.run()


if __name__ == '__main__':
  run()
