"""Long Range Arena: any attention mechanism on any of its tasks.

`lra.load(run directory, checkpoint or exported folder)` returns a trained model
that predicts and evaluates. `lra.results()` returns the leaderboard as a pandas
frame.
"""

__all__ = ['load', 'results']


def load(folder):
  """Returns the model of a run or of an exported folder; see `lra.api.load`.
  """
  from lra.system import machine
  machine.skip_tpu()  # before JAX is imported
  from lra import api
  return api.load(folder)


def results(folder=None, each='row'):
  """Returns the leaderboard as a pandas frame; see `lra.report.data.frame`."""
  from lra.report import data
  return data.frame(folder, each)
