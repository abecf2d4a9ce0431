"""Which rows the page names: overviews, the best, twins, the budget."""

import re

import pytest
from test_leaderboard import FLOORS, RUNS, Place, make, scores

from lra import bits

pytestmark = pytest.mark.usefixtures('no_protocols')


def test_models_that_give_the_same_answers_are_named_together(tmp_path):
  def one(model, seed=0, swapped=False, **changed):
    flags = [True] * 130 + [False] * 70
    flags = flags[::-1] if swapped else flags
    return make(model, seed, test=scores(
        130, 70, correct=bits.pack(flags), **changed))

  def sentence(*runs):
    where = tmp_path / str(len(list(tmp_path.iterdir())))
    return re.findall('^(.*) have the same loss and the same right answers',
                      Place(where, runs).render(), re.MULTILINE)

  assert sentence(one('mqa'), one('gqa')) == ['gqa and mqa']
  assert not sentence(one('mqa'), one('gqa', swapped=True))
  assert not sentence(one('mqa'), one('gqa', loss=0.25))
  assert not sentence(make('mqa'), make('gqa'))  # who says which were right?
  assert not sentence(one('mqa'), one('gqa'), one('mqa', 1),
                      one('gqa', 1, swapped=True))


def test_a_table_says_by_what_rows_are_told_apart(tmp_path):
  """130, 131, 132 of 200, and two examples more: deviations of half a percent.

  On other data it would be another spread.
  """
  def rows(model, more, data='feed00000000'):
    return [make(model, seed, right=130 + seed + more, data_fingerprint=data)
            for seed in range(3)]

  def told(name, runs):
    return re.findall('^Ranks are of (.*?)[:,].* row is ([0-9.]* points)?|'
                      '^Ranks are of (these trained networks),', Place(
                          tmp_path / name, runs).render(), re.MULTILINE)

  seeds, networks = ('mechanisms', '0.52 points', ''), (
      '', '', 'these trained networks')
  assert told('same', rows('local', 0) + rows('mqa', 2)) == [seeds]
  assert not told('alone', rows('local', 0))
  assert told('single', [make('local'), make('mqa', right=150)]) == [networks]
  assert told('foreign', rows('local', 0) + rows('mqa', 2, 'beef')) == [
      networks]


def test_other_data_makes_no_headline(tmp_path):
  """A better row on data with a higher floor of its own."""
  other = make('local', task='text', right=199, data_fingerprint='beef',
               floors={'rule': 0.99})
  ours = make('mqa', task='text', right=180)
  floors = {**FLOORS, 'task': 'text'}
  page = Place(tmp_path, [other, ours], (floors,)).render()
  highest = max(f['accuracy'] for f in FLOORS['floors'].values())
  assert re.search(
      rf'^\| Text \| mqa \| 90.0 \| {100 * highest:.2f} \|', page,
      re.MULTILINE)
  assert f'| **highest floor** | – | **{100 * highest:.2f}** |' in page
  assert 'no row is above' not in page
  # Nothing else is there: it has the headline, under its own floor.
  alone = Place(tmp_path / 'alone', [other]).render()
  assert re.search(r'^\| Text \| local .*\| 99.50? \| 99.00 \|', alone,
                   re.MULTILINE)


def test_a_mean_without_the_seeds_that_failed_is_marked(tmp_path):
  runs = [make(right=150), make(seed=1, status='diverged', test=None)]
  page = Place(tmp_path, runs).render()
  assert '| transformer | simpletron | 75.0 ‡ |' in page
  assert '| 1 of 2 |' in page and 'diverged at step' in page


def test_overview_has_floors_first_and_the_row_with_most_seeds(tmp_path):
  runs = [*RUNS, make(task='retrieval_rfc_mini', right=102)]
  assert """\
| model | protocol | Text mini | RFC citations mini |
| :-- | :-- | --: | --: |
| **highest floor** | – | **68.00** | **50.00** |
| linear_transformer | simpletron | – | – |
| simpletron | simpletron | 70.0 †‡ | – |
| transformer | simpletron | 65.3 | 51.0 |
""" in Place(tmp_path, runs).render()


def test_overview_does_not_choose_by_accuracy(tmp_path):
  lucky = make(right=190, steps=9000)
  text = Place(tmp_path, [make(seed=0, right=110), make(seed=1, right=112),
                          lucky]).render()
  assert '| transformer | simpletron | 55.5 |' in text


def test_best_rows_of_full_tasks_come_first(tmp_path):
  other = make('performer', task='retrieval', right=150, protocol='lra')
  other['config']['protocol'] = 'lra'
  changed = make('local', task='retrieval', right=190,
                 changes={'train.steps': 5000})
  floors = {**FLOORS, 'task': 'text'}
  text = Place(tmp_path, [
      *RUNS, make('longformer', task='retrieval', right=140),
      make('reformer', task='retrieval', right=130), other, changed,
  ], (FLOORS, floors)).render()
  best = """\
| task | highest score | accuracy % | highest floor % | above floor \
| 95% interval | seeds | rank | protocol | models |
| :-- | :-- | --: | --: | --: | --: | --: | --: | :-- | --: |
| Retrieval | performer | 75.0 | 50.00 | +25.0 | 68.6 to 80.5 \\* | 1 | 1 \
| lra | 1 |
| Retrieval | longformer | 70.0 | 50.00 | +20.0 | 63.3 to 75.9 \\* | 1 | 1–2 \
| simpletron | 2 |
"""
  assert text.index(best) < text.index('full_tasks.svg') < text.index('## Full')
  assert text.index('## Full') < text.index('## Reading the tables')


def test_what_is_too_large_is_not_the_best_row(tmp_path):
  # 157,634 parameters has the nystrom protocol's Transformer on pathfinder.
  def row(model, right, params):
    run = make(model, task='pathfinder', right=right, params=params,
               protocol='nystrom')
    run['config']['protocol'] = 'nystrom'
    return run

  def best(*runs):
    page = Place(tmp_path / str(len(list(tmp_path.iterdir()))), runs).render()
    return re.findall(r'^\| Pathfinder \| (\S+) \|', page, re.MULTILINE)

  large, small = row('super', 150, 173_398), row('local', 120, 173_397)
  assert best(small) == best(large, small) == ['local']
  assert best(large) == ['–']
  # A row of the Transformer counts more than what was counted.
  assert best(large, small, row('transformer', 110, 170_000)) == ['super']


def test_a_wide_transformer_does_not_become_the_budget(tmp_path):
  wide = make(params=9000)
  wide['config']['encoder']['width'] = 640
  text = Place(tmp_path, [*RUNS, wide]).render()
  assert '; +10.1% parameters** |' in text
  assert '| **9,000** |' in text and '| 9.00 |' in text
  assert '**+800.0% parameters**' in text


def test_a_floor_is_compared_by_the_same_examples(tmp_path):
  """Ten points above: 20 to 0 examples say so, 110 to 90 do not."""
  flags = [True] * 100 + [False] * 100

  def line(answers):
    floors = {'task': 'text_mini', 'fingerprint': 'feed00000000', 'floors': {
        'rule': {'accuracy': 0.5, 'how': 'by hand', 'examples': 200,
                 'correct': bits.pack(flags)}}}
    run = make(test=scores(110, 90, correct=bits.pack(answers)))
    return Place(tmp_path / str(sum(answers[:100])), [run], (floors,)).render()

  same = line([True] * 110 + [False] * 90)
  assert '| +5.0 | 1 |' in same and 'no row is above' not in same
  other = line([True] * 10 + [False] * 90 + [True] * 100)
  assert '| +5.0 n.s. | 1 |' in other
  assert 'no row is above the floor rule (50.00 %) by more than' in other


def test_of_equal_rows_validation_decides_for_the_overview(tmp_path):
  def run(width, right, val):
    one = make(right=right, val=scores(val, 200 - val))
    one['config']['encoder']['width'] = width
    return one

  text = Place(tmp_path, [run(32, 120, 130), run(64, 140, 110)]).render()
  assert '| transformer | simpletron | 60.0 |' in text
