"""Trains a model on a task, or regenerates the leaderboard; see README.md."""

import sys

from lra import signals, streams


def run() -> None:
  """The command `lra`, which is `python run_lra.py`."""
  sys.modules['__main__'].__doc__ = __doc__  # what --help says first
  streams.keep()
  signals.listen()
  from lra import main  # takes long: signals are heard by then
  main.run()


if __name__ == '__main__':
  run()
