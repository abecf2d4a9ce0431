"""Tests the choice of settings by validation, and that test scores stay hidden.
"""

import copy
import json
import re
import types

import pytest

from lra.many import choose, status
from lra.many.runs import Run, Unit, units
from lra.schema import result
from tests.helpers import scored
from tests.helpers.paths import ROOT

RUN = json.loads((ROOT / 'tests/board/data/result.json').read_text())


def _result(accuracy, task='listops', examples=100):
  return types.SimpleNamespace(
      status='ok', task=task, test=types.SimpleNamespace(
          accuracy=accuracy, confusion=[[1]], examples=examples, correct=''))


def test_several_seeds_have_a_mean_and_its_interval():
  """By Student's t of 2 degrees, the interval is +- 4.3027 * 0.1 / sqrt(3)."""
  assert choose.tested([_result(x) for x in (0.4, 0.5, 0.6)]) == (
      '3 seeds: test accuracy 50.0% (95% interval of the mean 25.2% to '
      '74.8%)')
  # With a deviation of 0.001 instead of 0.1, one more digit is certain.
  assert choose.tested([_result(x) for x in (0.499, 0.5, 0.501)]) == (
      '3 seeds: test accuracy 50.00% (95% interval of the mean 49.75% to '
      '50.25%)')
  assert choose.tested([_result(1.0)] * 2) == (
      '2 seeds: test accuracy 100.0% (95% interval by the test examples alone '
      '96.3% to 100.0%)')
  # 100 sequences with 32 answers each.
  assert choose.tested([_result(1.0, 'mqar', 3200)] * 2) == (
      '2 seeds: test accuracy 100.0% (95% interval by the test examples alone '
      '96.3% to 100.0%)')
  assert choose.tested([_result(0.4)]) == 'test accuracy 40.00%'
  assert not choose.tested([types.SimpleNamespace(test=None)] * 2)



def _made(rate, seed, hits, tested=50, status='ok', loss=0.5):
  run = copy.deepcopy(RUN) | {'seed': seed, 'status': status}
  run['config'] |= {'seed': seed}
  run['config']['train']['learning_rate'] = rate
  run['val'] = scored.of([[hits, 100 - hits], [0, 0]], loss=loss)
  run['test'] = scored.of([[tested, 100 - tested], [0, 0]])
  return result.validate(run)


@pytest.mark.parametrize('settings, index', [
    ([[70, 50], [62, 62]], 1),  # the mean of 60 and 62
    ([[70, 50], [60, 60]], 0),
    ([[70, 60], [65, 65], [64, 66]], 0)])
def test_the_mean_over_seeds_decides(settings, index):
  made = [[_made(rate, seed, hits) for seed, hits in enumerate(runs)]
          for rate, runs in zip((0.1, 0.2, 0.3), settings, strict=False)]
  found = choose.of(made)
  assert found.index == index
  assert found.means == pytest.approx(
      [sum(runs) / len(runs) / 100 for runs in settings])


def test_a_setting_with_a_diverged_seed_is_never_the_best():
  made = [[_made(0.1, 0, 99), _made(0.1, 1, 99, status='diverged')],
          [_made(0.2, 0, 20), _made(0.2, 1, 20)]]
  assert choose.of(made).index == 1
  assert choose.of(made[:1]).index is None


def test_settings_are_named_by_the_fields_that_differ():
  assert choose.names([{'a': 1, 'b': 0.1, 'seed': 0}, {'a': 1, 'b': 0.2},
                     {'a': 1, 'b': 0.2, 'c': 'x'}]) == [
      'b=0.1', 'b=0.2', 'b=0.2 c=x']


@pytest.fixture
def entries(tmp_path):
  """Two settings of one model with two seeds, and a model with one setting."""
  def entry(model, rate, seed, hits, tested):
    folder = tmp_path / f'{model}{rate}-{seed}'
    folder.mkdir()
    (folder / 'config.json').write_text(
        json.dumps(_made(rate, seed, hits).config))
    result.write(folder / 'result.json', _made(rate, seed, hits, tested))
    return Run(
        (f'--config={model}', f'--config.train.learning_rate={rate}',
         f'--config.seed={seed}'), folder, 1,
        json.dumps([{'train.learning_rate': rate}, seed]))
  return [entry('one', 0.1, 0, 70, 11), entry('one', 0.1, 1, 50, 12),
          entry('one', 0.2, 0, 62, 13), entry('one', 0.2, 1, 62, 14),
          entry('other', 0.1, 0, 60, 15)]


def _tests(text):
  """Returns the test column of a table."""
  head, *lines = text.splitlines()
  end = head.index('test %') + 6
  return [line[end - 6:end].strip() for line in lines
          if re.match('(ok|new|started) ', line)]


def test_a_table_has_the_test_score_of_the_best_setting_only(entries):
  text = status.text(*status.standings(entries))
  assert _tests(text) == ['–', '–', '13.00', '14.00', '15.00']
  assert text.splitlines()[-1].startswith(
      'one: best of 2 settings by validation: train.learning_rate=0.2 '
      '(62.00%, mean of 2 seeds); 2 seeds: test accuracy 13.5%')


@pytest.mark.parametrize(('tested', 'told'), [
    (15, 'no significant difference'), (95, 'differs significantly')])
def test_models_are_ranked_as_on_the_page(entries, tested, told):
  """Only the best setting of a model counts, once all its runs have ended."""
  result.write(entries[4].folder / 'result.json', _made(0.1, 0, 60, tested))
  head, baseline, first, second = choose.ranked(units(entries))
  assert head.startswith('text_mini, compared by test examples')
  assert ('95.0' in first) == (tested == 95)
  assert told in first and told in second
  assert ('rank 1–2' in first) == (tested == 15)
  assert '11.' not in first + second and '13.5' in first + second
  (entries[0].folder / 'result.json').unlink()
  assert choose.ranked(units(entries)) == []


@pytest.mark.parametrize('left, setting', [
    ([3], '0.2 (62.00%)'), ([2, 3], '0.1 (60.00%, mean of 2 seeds)')])
def test_until_all_runs_have_ended_no_test_score_is_shown(
    entries, left, setting):
  for i in left:
    (entries[i].folder / 'result.json').unlink()
  text = status.text(*status.standings(entries))
  assert set(_tests(text)) == {'–', '15.00'}
  assert f'settings by validation: train.learning_rate={setting}' in text
  assert 'best so far' in text and 'test accuracy' not in text
  # A part on another machine does not know all results either.
  assert _tests(status.text(
      *status.standings(entries[:2], whole=entries))) == ['–', '–']


RATES = 0.001, 0.01, 0.1, 1.0
FIELD = 'train.learning_rate'


@pytest.fixture
def unit(tmp_path):
  """Returns a function that makes a search of one seed from its results.

  Each is (right of 100 in validation, loss), and changed fields of the result.
  """
  def made(*found):
    settings = []
    for rate, (hits, loss, *others) in zip(RATES, found, strict=False):
      run = copy.deepcopy(RUN) | dict(*others)
      run['config']['train']['learning_rate'] = rate
      run['val'] = scored.of([[hits, 100 - hits], [0, 0]], loss=loss)
      folder = tmp_path / str(rate)
      folder.mkdir()
      (folder / 'result.json').write_text(json.dumps(run))
      settings.append((Run((f'--config.{FIELD}={rate}', ''), folder),))
    return Unit(tuple(settings), (FIELD,))

  return made


@pytest.mark.parametrize('runs, best', [
    ([(60, 0.5), (70, 0.5), (65, 0.1)], 1),
    ([(70, 0.5), (70, 0.4), (70, 0.6)], 1),  # ties: the lower loss,
    ([(60, 0.1), (70, 0.5), (70, 0.5)], 1),  # then the first
    ([(70, 0.5), (70, 0.5), (70, 0.4), (70, 0.4)], 2)])
def test_a_search_chooses_by_validation(unit, runs, best):
  chosen = choose.choice(unit(*runs))
  assert chosen.runs[0].folder.name == str(RATES[best])
  assert chosen.search.grid == {FIELD: list(RATES[:len(runs)])}
  assert chosen.search.scores == [
      ({FIELD: rate}, hits / 100)
      for rate, (hits, _) in zip(RATES, runs, strict=False)]


def test_test_scores_choose_nothing(unit):
  """An earlier command may have tested a run of the search."""
  assert choose.choice(unit(
      (70, 0.5, {'test': None, 'status': 'validated'}),
      (60, 0.4, {'test': scored.of([[100, 0], [0, 100]])})
  )).runs[0].folder.name == '0.001'


@pytest.mark.parametrize('first, name', [((60, 0.5), '0.001'), (
    (60, 0.5, {'status': 'diverged', 'test': None}), '')])
def test_a_diverged_run_is_tried_but_never_chosen(unit, first, name):
  chosen = choose.choice(unit(
      first, (99, 0.1, {'status': 'diverged', 'test': None})))
  assert [run.folder.name for run in chosen.runs] == [name] * bool(name)
  assert chosen.search.tried == 2
  assert [score for _, score in chosen.search.scores] == [
      0.6 if name else None, None]


@pytest.mark.parametrize('last', [
    (50, 0.5, {'status': 'oom', 'test': None}),
    (50, 0.5, {'status': 'stopped', 'test': None}), None])
def test_an_incomplete_search_chooses_nothing(unit, last):
  made = unit((60, 0.5), last or (50, 0.5))
  if not last:
    (made.settings[1][0].folder / 'result.json').unlink()
  assert choose.choice(made) is None
