"""Trains a model on a task, or regenerates the leaderboard; see README.md."""

from lra import signals, streams

if __name__ == '__main__':
  streams.keep()
  signals.listen()
  from lra import main  # takes long: signals are heard by then
  main.run()
