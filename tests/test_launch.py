"""Where records go, and what is said of several seeds."""

import json
import pathlib
import types

from absl import flags
from absl.testing import flagsaver

from lra import launch
from lra import place as place_lib
from lra.report import publish, result

RUN = pathlib.Path(__file__).parent / 'report' / 'data' / 'result.json'


def _place(*arguments):
  """Where these arguments want the leaderboard."""
  with flagsaver.flagsaver():
    flags.FLAGS(['lra', *arguments])
    return launch.place()


def test_another_folder_of_records_has_a_page_of_its_own(tmp_path):
  own = tmp_path / 'own'
  place = _place(f'--results_dir={own}')
  assert place.page == own / 'leaderboard.md'
  publish.publish(result.validate(json.loads(RUN.read_text())), place)
  assert '](figures/' in place.page.read_text()
  assert list((own / 'figures').iterdir())
  there = _place(f'--results_dir={own}', '--page=there.md')
  assert there.page == pathlib.Path('there.md')
  for ours in ([], [f'--results_dir={place_lib.results()}']):
    assert _place(*ours).page == place_lib.page()


def _result(accuracy):
  return types.SimpleNamespace(test=types.SimpleNamespace(
      accuracy=accuracy, confusion=[[1]], examples=100))


def test_several_seeds_have_a_mean_and_its_interval():
  """t of 2 degrees at 97.5% is 4.3027, in any table; 4.3027 x 0.1 / sqrt 3."""
  assert launch.over_seeds([_result(x) for x in (0.4, 0.5, 0.6)]) == (
      '3 seeds: test accuracy 50.0% (95% interval of the mean 25.2% to '
      '74.8%)\n')
  # The same of a spread of 0.001: the interval leaves one more digit certain.
  assert launch.over_seeds([_result(x) for x in (0.499, 0.5, 0.501)]) == (
      '3 seeds: test accuracy 50.00% (95% interval of the mean 49.75% to '
      '50.25%)\n')
  assert not launch.over_seeds([_result(0.4)])
  assert not launch.over_seeds([types.SimpleNamespace(test=None)] * 2)
