"""Tests the tables of models and tasks: their cells, and means over tasks."""

import pytest

from lra.board import frame, summary
from lra.core import tasks as tasks_lib
from tests.helpers import scored
from tests.helpers.page import FLOORS, RUNS, Place, make

pytestmark = pytest.mark.usefixtures('no_protocols')
FIVE = ('listops', 'text', 'retrieval', 'image', 'pathfinder')


def rows(tasks, model='transformer', right=100):
  """Returns a run per task, with `right`, `right` + 2, ... of 200 right."""
  runs = [make(model, task=task, right=right + 2 * i)
          for i, task in enumerate(tasks)]
  for run in runs:
    more = tasks_lib.get(run['task']).num_classes - 2
    for split in ('val', 'test'):
      run[split] = scored.of([
          line + [0] * more for line in run[split]['confusion']
      ] + [[0] * (2 + more)] * more, loss=run[split]['loss'])
  return runs


def tables(tmp_path, runs, group='full', floors=()):
  """Returns {protocol: {model: {column: (text, whether bold)}}}.

  The models are in the order of the table.
  """
  place = Place(tmp_path / str(len(list(tmp_path.iterdir()))), runs, floors)
  boards, _ = frame.load(place.runs, place.baselines)
  return {found.protocol: {
      item.model: {column.name: column for column in found.table.columns} | {
          column.name: (column.text(item), column.strong(item))
          for column in found.table.columns}
      for item in found.table.items} for found in summary.by_protocol(
          boards, group)}


def table(*arguments, **options):
  found, = tables(*arguments, **options).values()
  return found


def test_changed_rows_are_shown_if_there_are_no_others(tmp_path):
  changed = rows(['listops_mini'])
  for run in changed:
    run['changes'] = {'train.steps': 1}
  found = tables(tmp_path, changed, 'mini')
  assert list(found) == ['simpletron, settings changed']
  assert 'transformer' in found[list(found)[0]]
  both = tables(tmp_path, changed + rows(['listops_mini'], 'local'), 'mini')
  assert list(both) == ['simpletron'] and 'local' in both['simpletron']


def test_path_x_makes_another_mean(tmp_path):
  found = table(tmp_path, rows((*FIVE, 'pathx')) + rows(FIVE, 'local', 110))
  assert [found[model][name][0] for model in ('transformer', 'local')
          for name in ('mean of 5', 'mean of 6')] == [
              '52.0', '52.5', '57.0', '–']


@pytest.mark.parametrize('tasks', [
    FIVE[:4], tuple(task.replace('retrieval', 'retrieval_rfc')
                    for task in FIVE)])
def test_without_a_whole_row_there_is_no_mean(tmp_path, tasks):
  assert 'mean of 5' not in table(tmp_path, rows(tasks))['transformer']


def test_protocols_have_tables_of_their_own(tmp_path):
  runs = rows(FIVE)
  runs[0] |= {'protocol': 'lra', 'config': {
      **runs[0]['config'], 'protocol': 'lra'}}
  found = tables(tmp_path, runs)
  assert [(protocol, 'ListOps' in lines['transformer'])
          for protocol, lines in found.items()] == [
              ('lra', True), ('simpletron', False)]
  assert 'mean of 5' not in found['simpletron']['transformer']


def test_a_mean_is_heavy_where_one_of_its_rows_is(tmp_path):
  heavy = rows(FIVE, 'local')
  heavy[0]['num_params'] = 1101
  found = table(tmp_path, rows(FIVE) + heavy)
  assert found['local']['mean of 5'][0] == '52.0 †'


def test_only_tasks_with_rows_have_a_column_and_their_baselines(tmp_path):
  found = table(tmp_path, rows(['listops', 'text']), floors=[
      {**FLOORS, 'task': task} for task in ('listops', 'image')])
  assert list(found) == ['baseline', 'transformer']
  assert list(found['baseline']) == ['model', 'ListOps', 'Text', 'state size']
  assert [cell for cell, _ in found['baseline'].values()] == [
      'baseline', '68.00', '50.00', '–']


def test_states_span_the_tasks(tmp_path):
  """The state holds keys and values of 2,001 or 1,025 positions, width 512."""
  found = table(tmp_path, rows(['listops', 'image']) + rows(
      ['listops', 'image'], 'simpletron'))
  assert found['transformer']['state size'][0] == '1,049,600 to 2,049,024'
  assert found['simpletron']['state size'][0] == '32,768'


def test_cells_have_their_interval_and_marks(tmp_path):
  """In RUNS, a model above the parameter budget has 70%, two seeds 65.25%."""
  found = table(tmp_path, [*RUNS, make(task='retrieval_rfc_mini', right=160)],
                'mini', [FLOORS])
  assert list(found) == [
      'baseline', 'simpletron', 'transformer', 'linear_transformer']
  # ±6.3 is half of 63.3 to 75.9, ±3.2 half of 62.1 to 68.4. No mark beside 80%:
  # it is significantly above its baseline, 50%.
  assert [found[model]['Text mini'] for model in found] == [
      ('68.00', True), ('70.0 ±6.3 =†‡', True), ('65.3 ±3.2 =', True),
      ('–', False)]
  assert found['transformer']['RFC citations mini'] == ('80.0 ±5.5', True)


def test_what_is_below_the_baseline_says_so_though_it_is_the_best(tmp_path):
  found = table(tmp_path, [make(right=100), make('local', right=60)], 'mini',
                [FLOORS])
  assert found['transformer']['Text mini'] == ('50.0 ±6.9 <', True)
  assert found['local']['Text mini'] == ('30.0 ±6.3 <', False)


def test_the_best_on_the_first_task_comes_first(tmp_path):
  runs = [make(model, task=task, right=right) for model, task, right in (
      ('a', 'text', 120), ('b', 'text', 150), ('c', 'retrieval', 190))]
  assert list(table(tmp_path, runs)) == ['baseline', 'b', 'a', 'c']


def test_the_row_with_most_seeds_is_shown_not_the_best(tmp_path):
  runs = [make(seed=0, right=110), make(seed=1, right=112),
          make(right=190, steps=9000)]
  assert table(tmp_path, runs, 'mini')['transformer']['Text mini'][
      0].startswith('55.5 ')


def test_of_equal_rows_validation_decides(tmp_path):
  def run(width, right, val):
    one = make(right=right, val=scored.of([[val, 200 - val], [0, 0]]))
    one['config']['encoder']['width'] = width
    return one
  runs = [run(32, 120, 130), run(64, 140, 110)]
  assert table(tmp_path, runs, 'mini')['transformer']['Text mini'][
      0].startswith('60.0 ')


def test_tasks_that_no_model_has_learnt_are_named(tmp_path):
  place = Place(tmp_path, [
      make(right=150, task='retrieval'), make(task='text')],
      [{**FLOORS, 'task': 'text'}])
  boards, _ = frame.load(place.runs, place.baselines)
  found, = summary.by_protocol(boards, 'full')
  assert found.unbeaten == ['Text']


def test_a_mean_has_the_digits_of_its_coarsest_score():
  line = summary.Line('local', '', {
      'text': summary.Cell(0.5, digits=1), 'image': summary.Cell(0.25)})
  assert line.mean(['text', 'image']) == summary.Cell(0.375, digits=1)
