"""Root mean squares, to measure errors."""

import numpy as np


def rms(x):
  """Returns the root mean square of an array."""
  return float(np.sqrt(np.mean(np.square(np.asarray(x, np.float64)))))


def relative_rms(got, want):
  """Returns rms(got - want) / rms(want); 0 if both are 0."""
  got, want = (np.asarray(x, np.float64) for x in (got, want))
  error, size = rms(got - want), rms(want)
  return error if error == 0 else error / size if size else np.inf
