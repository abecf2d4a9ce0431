"""What is said of all tasks: means over them, and which have no run."""

import pytest
import scored
from test_leaderboard import FLOORS, Place, make

from lra import tasks as tasks_lib

pytestmark = pytest.mark.usefixtures('no_protocols')
FIVE = ('listops', 'text', 'retrieval', 'image', 'pathfinder')


def rows(tasks, model='transformer', right=100):
  """A run on each task: of 200 examples `right`, then two more each."""
  runs = [make(model, task=task, right=right + 2 * i)
          for i, task in enumerate(tasks)]
  for run in runs:
    more = tasks_lib.get(run['task']).num_classes - 2
    for split in ('val', 'test'):
      run[split] = scored.of([
          line + [0] * more for line in run[split]['confusion']
      ] + [[0] * (2 + more)] * more, loss=run[split]['loss'])
  return runs


def overview(tmp_path, runs):
  """The cells of the overview of the full tasks, by line."""
  text = Place(tmp_path, runs, ()).render().split('## Full tasks')[1]
  lines = text.split('\n\n')[1].splitlines()
  return {line.split(' | ')[0].strip('| '): line.strip('|').split(' | ')
          for line in lines}


def test_five_tasks_have_a_mean_as_long_range_arena_prints_it(tmp_path):
  found = overview(tmp_path, rows(FIVE) + rows(FIVE[:4], 'local'))
  assert found['model'][-1].strip() == 'mean of 5'
  # 50, 51, 52, 53 and 54%.
  assert found['transformer'][-1].strip() == '52.0'
  assert found['local'][-1].strip() == '–'


def test_path_x_makes_another_mean(tmp_path):
  found = overview(tmp_path, rows((*FIVE, 'pathx')) + rows(FIVE, 'local', 110))
  assert [cell.strip() for cell in found['model'][-2:]] == [
      'mean of 5', 'mean of 6']
  assert [x.strip() for x in found['transformer'][-2:]] == ['52.0', '52.5']
  assert [x.strip() for x in found['local'][-2:]] == ['57.0', '–']


@pytest.mark.parametrize('tasks', [
    FIVE[:4], tuple(task.replace('retrieval', 'retrieval_rfc')
                    for task in FIVE)])
def test_without_a_whole_row_there_is_no_mean(tmp_path, tasks):
  assert 'mean' not in str(overview(tmp_path, rows(tasks))['model'])


def test_scores_of_several_protocols_are_no_row(tmp_path):
  runs = rows(FIVE)
  runs[0] |= {'protocol': 'lra', 'config': {
      **runs[0]['config'], 'protocol': 'lra'}}
  assert 'mean' not in str(overview(tmp_path, runs)['model'])


def test_a_mean_is_heavy_where_one_of_its_rows_is(tmp_path):
  heavy = [{**run, 'params': 1101} for run in rows(FIVE, 'local')]
  heavy[0]['num_params'] = 1101
  found = overview(tmp_path, rows(FIVE) + heavy)
  assert found['local'][-1].strip() == '52.0 †'


def floors(*names):
  return [{**FLOORS, 'task': task} for task in names]


def test_full_tasks_without_a_run_are_named_below_the_first_table(tmp_path):
  text = Place(tmp_path, rows(['listops']), floors(
      'listops', 'text', 'image')).render()
  best, rest = text.split('## Full tasks')
  assert '\n| ListOps | transformer |' in best and '| – |' not in best
  none = '(no floor has been computed)'
  assert ('\n\nNo run yet: Text (highest floor 68.00 %, n-grams), Retrieval '
          f'{none}, RFC citations {none}, Image (highest floor 68.00 %, '
          f'n-grams), Pathfinder {none}, Pathfinder 64 {none}, Path-X {none}, '
          f'Path-256 {none}.\n\n') in best
  assert 'No run yet' not in rest.split('## Mini tasks')[0]


def test_tasks_of_other_groups_are_named_below_their_overview(tmp_path):
  text = Place(tmp_path, [make()], floors(
      'text_mini', 'image_mini', 'text')).render()
  mini = text.split('## Mini tasks')[1].split('## Probes')[0]
  line = 'No run yet: Image mini (highest floor 68.00 %, n-grams).'
  assert mini.count('No run yet') == 1 and line in mini
  assert mini.index('| **highest floor') < mini.index(line) < mini.index('###')


def test_without_records_each_group_is_one_line(tmp_path):
  text = Place(tmp_path, (), floors('text', 'image', 'text_mini')).render()
  groups = text.split('## Full tasks')[1].split('## Reading')[0]
  assert '|' not in groups
  full, mini, probes = (line for line in groups.splitlines()
                        if line.startswith('No run yet'))
  assert full.startswith('No run yet: Text (') and 'Image (' in full
  assert mini.startswith('No run yet: Text mini (')
  assert probes == 'No run yet: see "Add a row" below.'
