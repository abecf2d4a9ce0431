"""Trains a model on a task, or regenerates the leaderboard; see README.md."""

from lra import main

if __name__ == '__main__':
  main.run()
