"""What is said of several seeds."""

import types

from lra import launch


def _result(accuracy):
  return types.SimpleNamespace(test=types.SimpleNamespace(
      accuracy=accuracy, confusion=[[1]], examples=100))


def test_several_seeds_have_a_mean_and_its_interval():
  """t of 2 degrees at 97.5% is 4.3027, in any table; 4.3027 x 0.1 / sqrt 3."""
  assert launch.over_seeds([_result(x) for x in (0.4, 0.5, 0.6)]) == (
      '3 seeds: test accuracy 50.00% (95% interval of the mean 25.16% to '
      '74.84%)\n')
  assert not launch.over_seeds([_result(0.4)])
  assert not launch.over_seeds([types.SimpleNamespace(test=None)] * 2)
