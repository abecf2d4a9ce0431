"""Tests the laptop arena: its lines, comparisons, validity and power."""

import json
import re

import numpy as np
import pytest
import scipy.stats

from lra.board import foretelling, frame, inputs, statistics, suite, suite_page
from lra.board.statistics import Sample
from lra.core import tasks
from tests.helpers import scored
from tests.helpers.page import make

pytestmark = pytest.mark.usefixtures('no_protocols')
COMPARED = [task.name for task in suite.suite().compared]
RATES = [0.001, 0.003, 0.01]


def _record(model, task, seed, right, rate=0.003, device='cpu (2 cores)'):
  """Returns a searched record of 1,000 examples."""
  made = make(model, seed, task=task, device=device)
  made['protocol'] = made['config']['protocol'] = 'laptop_1'
  made['config']['train'] |= {'learning_rate': rate}
  classes = tasks.get(task).num_classes
  made['val'] = made['test'] = scored.of(
      [[right, 1000 - right] + [0] * (classes - 2)]
      + [[0] * classes] * (classes - 1), loss=0.5 + 1e-9 * seed)
  return made | {'search': {
      'tried': 3, 'grid': {'train.learning_rate': RATES},
      'chosen_by': 'validation accuracy', 'seed': 0, 'steps': 500,
      'seconds': 300.0, 'scores': [
          [{'train.learning_rate': one}, 0.7 if one == rate else 0.6]
          for one in RATES]}}


@pytest.fixture
def boards(tmp_path):
  def made(right, seeds=3, **options):
    """`right` has the answers of each model on each compared task."""
    runs = [
        _record(model, task, seed, value + 3 * seed, **options)
        for model, values in right.items()
        for task, value in zip(COMPARED, values, strict=False)
        for seed in range(seeds)]
    for i, run in enumerate(runs):
      path = tmp_path / 'runs' / run['task'] / f'{i}.json'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(json.dumps(run))
    found, left_out = frame.load(tmp_path / 'runs', tmp_path / 'none')
    assert not left_out
    return found
  return made


@pytest.fixture(autouse=True)
def valid(monkeypatch):
  """Lets the tasks of this test be validated, but for these."""
  def made(*unvalidated):
    found = suite_of()
    changed = found._replace(tasks=[
        task._replace(validated=task.name not in unvalidated)
        for task in found.tasks])
    monkeypatch.setattr(suite, 'suite', lambda: changed)
  suite_of = suite.suite
  made()
  return made


FOUR = {'transformer': (400, 500, 600, 700), 's4d': (500, 600, 700, 800),
        'local': (402, 500, 600, 700), 'fnet': (300, 400, 500)}


def test_a_line_has_the_mean_of_its_tasks_and_its_rank(boards):
  s4d, local, transformer, fnet = suite.lines(boards(FOUR))
  assert [one.model for one in (s4d, local, transformer, fnet)] == [
      's4d', 'local', 'transformer', 'fnet']
  assert s4d.average.accuracies == pytest.approx((0.650, 0.653, 0.656))
  assert (s4d.rank.first, s4d.rank.last) == (1, 1)
  assert (local.rank.first, local.rank.last) == (2, 3)
  assert fnet.average is None and fnet.rank is None
  assert s4d.against[suite.AVERAGE] == suite.BETTER
  assert local.against[suite.AVERAGE] == suite.UNSURE
  assert fnet.against['listops_laptop'] == suite.WORSE
  assert suite.AVERAGE not in transformer.against
  # Two cores, and a third of the search.
  seconds = 160.0 + 4.5 + 8.25
  assert s4d.core_minutes == pytest.approx(2 * (seconds + 300 / 3) / 60)


def test_progress_counts_cells_and_their_time(boards):
  now = suite.progress(suite.lines(boards(FOUR | {'unknown': (300,)})))
  assert (now.made, now.complete) == (15, 0)
  assert now.cells == now.mechanisms * len(suite.suite().tasks)
  # Three runs of two cores, and their search.
  hours = 2 * (3 * (160.0 + 4.5 + 8.25) + 300) / 3600
  assert now.spent == pytest.approx(15 * hours)
  assert now.left == pytest.approx((now.cells - 15) * hours)


def test_rows_of_another_search_are_no_part_of_the_arena(boards, tmp_path):
  found = boards({'lru': (300,) * 4})
  for path in (tmp_path / 'runs').glob('*/*.json'):
    run = json.loads(path.read_text())
    run['search'] |= {'tried': 1, 'grid': {'train.learning_rate': [0.003]},
                      'scores': run['search']['scores'][1:2]}
    path.write_text(json.dumps(run))
  other, _ = frame.load(tmp_path / 'runs', tmp_path / 'none')
  assert suite.lines(found) and not suite.lines(other)


def test_a_mechanism_stands_among_the_others_only(boards):
  found = boards(FOUR)
  own = {task: Sample((0.9, 0.91, 0.92), 1000) for task in COMPARED}
  for model, of in (('mine', 4), ('s4d', 3)):
    made = suite.stands(model, own, found)
    assert [one[0] for one in made] == [
        *(task.ability for task in suite.suite().averaged), 'average']
    assert made[-1][1:] == ('91.0 ±2.5', f'rank 1 to 1 of {of}',
                            'better than the transformer: yes')
  made = suite.stands('mine', {COMPARED[0]: Sample((0.402,), 1000)}, found)
  assert len(made) == 1 and made[0][3].endswith('not told')
  assert made[0][1] == '40.2'  # no interval over one seed


@pytest.mark.parametrize('seeds', [1, 3])
def test_the_cost_of_a_run_has_a_third_of_its_search(boards, seeds):
  lines = suite.lines(boards(FOUR, seeds))
  run = 160.0 + 4.5 + 8.25
  assert lines[0].core_minutes == pytest.approx(2 * (run + 300 / 3) / 60)
  spent = suite.progress(lines).spent / sum(len(line.cells) for line in lines)
  assert spent == pytest.approx(2 * (seeds * run + 300) / 3600)


def test_only_held_out_mechanisms_validate_a_task(boards):
  """The order of the held-out ones is that of the papers, except for two."""
  held = ['lru', 's5', 'mega', 'fnet', 'linformer', 'reformer']
  right = {model: [300 + 50 * i] * 4 for i, model in enumerate(held)} | {
      'transformer': [100] * 4, 's4d': [900] * 4, 'local': [800] * 4}
  there = [10, 20, 40, 30, 50, 60]
  papers = [inputs.Published(
      model, dict.fromkeys(inputs.SCORES, str(score)), '', 'x', 'x',
      '2011.04006', 'primary', model) for model, score in zip(
          [*held, 'transformer', 's4d', 'local', 'lru'],
          [*there, 99, 1, 2, 5], strict=True)]
  found = foretelling.validity(suite.lines(boards(right)), papers)
  assert [one.ability for one in found] == [
      *(task.ability for task in suite.suite().averaged), 'average']
  expected = scipy.stats.spearmanr(there, range(6)).statistic
  for one in found:
    middle, low, high = one.held
    assert middle == pytest.approx(expected) and low < middle < high <= 1
    assert one.own is None and len(one.points) == 9
    assert one.verdict == 'validated'
    assert one.furthest == ('fnet', 3, 4)
    assert one.far == (14, 15)  # all but mega and fnet, 40 and 30
    assert one.known == 6
  reverse = [paper.__class__(**vars(paper) | {'scores': {
      name: str(100 - float(text)) for name, text in paper.scores.items()}})
             for paper in papers]
  found = foretelling.validity(suite.lines(boards(right)), reverse)
  assert {one.verdict for one in found} == {'not validated'}
  assert suite_page.foretold([found[0], found[-1]]) == (
      'Take two mechanisms that were not looked at when the arena was '
      'designed, with published scores 10 points or more apart. Of such pairs, '
      '1 of 15 on ListOps and 1 of 15 by the average have the same order here. '
      'So the arena does not foretell Long Range Arena as a whole.')
  assert not suite_page.foretold([])


def test_the_split_into_two_groups_is_no_order_within_them():
  """The largest gap of published scores is between 0.3 and 0.8."""
  there = {'lru': 0.1, 's5': 0.2, 'mega': 0.3, 'fnet': 0.8, 'linformer': 0.9,
           'hgrn': 0.85}
  here = {'lru': 3, 's5': 2, 'mega': 1, 'fnet': 6, 'linformer': 5, 'hgrn': 7}
  one = foretelling.Validity('ListOps', 'hierarchy', ['listops_laptop'], [
      (name, here[name], there[name]) for name in there], (0.5, 0, 1), None, 6)
  # Places less their mean: -1, 0, 1 and 1, 0, -1; -1, 0, 1 and 0, 1, -1.
  assert one.within == pytest.approx((-2 - 1) / 4)
  assert one._replace(held=None).within is None


def test_a_task_that_is_not_validated_leaves_the_average(boards, valid):
  """The first task has the published order, the others the opposite one."""
  names = ['lru', 's5', 'mega', 'fnet', 'linformer']
  found = boards({name: [400 + 50 * i, *[800 - 50 * i] * 3]
                  for i, name in enumerate(names)})
  papers = [inputs.Published(
      name, dict.fromkeys(inputs.SCORES, str(10 * i)), '', 'x', 'x',
      '2011.04006', 'primary', name) for i, name in enumerate(names)]
  valid(*COMPARED[1:])
  lines = suite.lines(found)
  assert [line.model for line in lines] == names[::-1]
  assert lines[0].average.accuracies == pytest.approx((0.6, 0.603, 0.606))
  one, *others, kept, every = foretelling.validity(lines, papers)
  assert [x.held[0] for x in (one, kept)] == pytest.approx([1, 1])
  assert [x.held[0] for x in (*others, every)] == pytest.approx([-1] * 4)
  assert (kept.ability, every.ability) == ('average', 'mean of all four')
  assert (kept.verdict, every.verdict) == ('no test', 'not validated')
  assert suite_page.averaged().startswith('The average is hierarchy alone')
  assert 'average' not in [
      column.name for column in suite_page.results(lines, found).columns]
  said = suite_page.foretold([one, kept, every])
  assert '10 of 10 on ListOps and 0 of 10 by the mean of all four have' in said
  valid(*COMPARED)  # no task is left
  lines = suite.lines(found)
  assert {line.rank for line in lines} == {None}
  assert [one.ability for one in foretelling.validity(lines, papers)][4:] == [
      'mean of all four']
  assert suite_page.averaged().startswith('There is no average')
  assert suite_page.results(lines, found).items


def test_published_tables_are_compared_with_each_other():
  """Only two of the three tables have four mechanisms in common."""
  def paper(protocol, here, score):
    return inputs.Published('x', dict.fromkeys(inputs.SCORES, str(score)), '',
                            protocol, 'x', '2011.04006', 'primary', here)
  names = ['lru', 's5', 'mega', 'fnet']
  papers = [
      *(paper('lra', *one) for one in zip(names, (1, 2, 3, 4), strict=True)),
      *(paper('s4', *one) for one in zip(names, (10, 40, 30, 20), strict=True)),
      *(paper('mega', *one) for one in zip(names[:3], (7, 8, 9), strict=True)),
      paper('lra', 'local', 'FAIL'), paper('s4', 'local', 50)]
  found = foretelling.between(papers)
  assert found.protocols == ('lra', 's4') and found.models == sorted(names)
  assert found.correlations == pytest.approx(dict.fromkeys(
      ('ListOps', 'Image', 'Pathfinder', 'Text'), 0.2))
  assert foretelling.between(papers[1:4]) is None
  assert not suite_page.between([])


def test_the_highest_published_score_counts(boards):
  def paper(score, here='lru'):
    return inputs.Published('x', dict.fromkeys(inputs.SCORES, score), '', 'x',
                            'x', '2011.04006', 'primary', here)
  found = foretelling.validity(
      suite.lines(boards({'lru': (300,) * 4})),
      [paper('40'), paper('60'), paper('FAIL'), paper('99', '')])
  assert [one.points for one in found[:-1]] == [
      [('lru', pytest.approx(0.303), 0.6)]] * 4


@pytest.mark.parametrize('rate, star', [(0.003, False), (0.001, True),
                                        (0.01, True)])
def test_a_learning_rate_at_the_end_of_the_grid_is_marked(boards, rate, star):
  found = boards({'lru': (300,) * 4}, rate=rate)
  table = suite_page.results(suite.lines(found), found)
  column, = (c for c in table.columns if c.name == 'hierarchy')
  assert ('*' in column.text(table.items[1])) == star


@pytest.mark.every(2)
@pytest.mark.parametrize('rows, seeds', [(24, 3), (76, 3)])
def test_equal_mechanisms_seldom_differ_at_the_sizes_of_the_arena(rows, seeds):
  """Any false difference in a table, and beside the reference: at most 5%.

  The bound allows for three standard errors of so many tables.
  """
  rng, tables = np.random.default_rng(0), 400
  pairs = reference = 0
  for _ in range(tables):
    deviations = 0.01 * np.sqrt(rng.chisquare(8, rows) / 8)
    samples = [Sample(tuple(rng.normal(0.5, s, seeds)), 10_000)
               for s in deviations]
    ranks, spread = statistics.rank(sorted(
        samples, key=lambda sample: -np.mean(sample.accuracies)))
    pairs += any(len(rank.like) < rows for rank in ranks)
    p = statistics.p_values(samples, spread)[0, 1:]
    reference += any(statistics.differ(p))
  for found in (pairs, reference):
    assert found / tables <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / tables)


def test_the_readme_has_the_best_and_the_well_known(boards, tmp_path):
  found = suite.lines(boards({
      'lru': (400, 300, 300, 300), 's5': (300, 400, 300, 300),
      'local': (350, 350, 350, 310), 'mega': (300, 300, 300, 305)}))
  assert {line.model for line in suite_page.known(found)} == {
      'lru', 's5', 'local'}


@pytest.mark.parametrize('right, said', [
    ({'lru': 600, 's5': 599, 'transformer': 300, 'mega': 200},
     r'`lru` is first with 60\.3 ±0\.7%, significantly ahead of 2 of 3 others, '
     r'but not of `s5`\. `transformer` has 30\.3 ±0\.7%, rank 3; '),
    ({'lru': 400, 'transformer': 300},
     r'`lru` is first with 40\.3 ±0\.7%, below the baseline, significantly '
     r'ahead of the other; next is `transformer`'),
    ({'lru': 600, 'transformer': 300, 'mega': 200},
     r'`lru` is first with 60\.3 ±0\.7%, significantly ahead of all 2 '
     r'others; next is `transformer` with 30\.3 ±0\.7%\. `transformer` has')])
def test_an_answer_names_the_first_and_who_is_not_behind(boards, right, said):
  found = boards({model: (value,) for model, value in right.items()})
  answer, = suite_page.answers(found)
  assert re.match(said, suite_page.said(answer))
  assert suite_page.said(answer).endswith('; the baseline has 50.0%.')
