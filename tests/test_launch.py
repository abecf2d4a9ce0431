"""Where records go, and what is said of several seeds."""

import json
import pathlib
import types

import commands
import pytest
import tiny
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
  assert launch.over_seeds([_result(1.0)] * 2) == (
      '2 seeds: test accuracy 100.0% (95% interval by the test examples alone '
      '96.3% to 100.0%)\n')
  assert not launch.over_seeds([_result(0.4)])
  assert not launch.over_seeds([types.SimpleNamespace(test=None)] * 2)


@pytest.fixture
def fork():
  """Runs commands; see `commands.Commands`."""
  made = commands.Commands()
  yield made.run
  made.close()


def test_each_run_of_a_grid_says_what_it_changes(fork, mini_data, tmp_path):
  """The rate 0.05 is the protocol's."""
  done = fork(
      'run_lra', f'--config={commands.ROOT}/configs/simpletron.py:listops_mini',
      *tiny.flags(**{'data_dir': mini_data, 'train.steps': 4}), '--seeds=0-1',
      '--grid=train.learning_rate=[0.05,0.2]', '--norecord', '--compile_cache=',
      cwd=tmp_path)
  assert done.returncode == 0, done.stderr
  runs = [json.loads(path.read_text())
          for path in tmp_path.glob('runs/*/*/*/result.json')]
  assert sorted((run['config']['train']['learning_rate'], run['seed'],
                 run['changes'].get('train.learning_rate'))
                for run in runs) == [
      (0.05, 0, None), (0.05, 1, None), (0.2, 0, 0.05), (0.2, 1, 0.05)]
  for rate in (0.05, 0.2):
    assert f'\ntrain.learning_rate {rate}: 2 seeds: test' in done.stdout
