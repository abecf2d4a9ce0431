"""Trains a model on a task, or regenerates the leaderboard; see README.md."""

import sys

from lra.core import signals, streams


def run() -> None:
  """Runs the command `lra`, which is `python run_lra.py`.

  `lra data` is `python -m lra.data_prep`, and `lra costs` is `python -m tools`.
  """
  sys.modules['__main__'].__doc__ = __doc__  # begins the text of --helpfull
  streams.keep()
  signals.listen()  # before the slow imports
  word = sys.argv.pop(1) if sys.argv[1:2] in (['data'], ['costs']) else ''
  if word == 'data':
    from lra.core import paths
    from lra.data_prep import __main__ as data
    sys.exit(data.main(program=' '.join([*paths.program(), 'data'])))
  if word == 'costs':
    from tools import __main__ as costs
    costs.run()
  else:
    from lra.cli import main
    main.run()


if __name__ == '__main__':
  run()
