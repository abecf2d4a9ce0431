"""Trains a model on a task, or regenerates the leaderboard; see README.md."""

import sys

from lra.system import signals, streams


def run() -> None:
  """Runs the command `lra`, which is `python run_lra.py`."""
  sys.modules['__main__'].__doc__ = __doc__  # begins the text of --helpfull
  streams.keep()
  signals.listen()
  from lra.cli import main  # takes long, so signals are handled before
  main.run()


if __name__ == '__main__':
  run()
