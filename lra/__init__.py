"""Long Range Arena: any attention mechanism on any of its tasks.

`lra.load(run directory, checkpoint or exported folder)` returns a trained model
that predicts and evaluates. `lra.results()` returns the leaderboard as a pandas
frame.
"""

__all__ = ['load', 'results']
__version__ = '0.2.0'


def load(folder):
  """Returns the model of a run or of an exported folder; see
  `lra.share.api.load`.
  """
  from lra.core import machine
  machine.skip_tpu()  # before JAX is imported
  from lra.share import api
  return api.load(folder)


def results(folder=None, each='row'):
  """Returns the leaderboard as a pandas frame; see `lra.board.data.frame`."""
  from lra.board import data
  return data.frame(folder, each)
