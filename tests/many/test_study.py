"""Tests studies: their files, the comparison of arms, and the page."""

import copy
import json
import pathlib

import numpy as np
import pytest
import scipy.stats

from lra.board.rows import Row
from lra.board.statistics import Sample
from lra.cli import main
from lra.core import errors
from lra.core.formats import percent, points
from lra.many import runs, status, study, study_figure
from lra.schema import result, runs_file
from tests.helpers import scored
from tests.helpers.paths import ROOT

RUN = json.loads((ROOT / 'tests/board/data/result.json').read_text())
_TEXT = '''
tasks = ["listops_mini", "text_mini"]
seeds = "0-1"
runs = [
  {arms = {a = "transformer"}},
  {arms = {b = "transformer"}, set.train.steps = 7},
]

[study]
title = "T"
question = "Q?"
source = "S"
reported = "R"
claims = [{text = "B is better.", arm = "b", than = "a", expected = "higher"}]
'''


def _write(folder, text=_TEXT):
  path = folder / 'one.toml'
  path.write_text(text)
  return path


def test_the_arms_of_a_study_are_no_settings(tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  found = runs.read(str(_write(tmp_path)))
  assert [(run.arm, run.folder.parts[1], run.seed) for run in found] == [
      (arm, task, seed) for arm in 'ab' for task in
      ('listops_mini', 'text_mini') for seed in '01']
  assert [len(unit.settings) for unit in runs.units(found)] == [1] * 4
  with pytest.raises(errors.UserError, match='leave out --models'):
    runs.read(str(_write(tmp_path)), ['gla'])


@pytest.mark.parametrize('text, word', [
    (_TEXT.replace('expected', 'expectd'),
     "study claims 1: there is no 'expectd': did you mean expected"),
    (_TEXT.replace('"higher"', '"better"'), 'study.claims.0.expected'),
    (_TEXT.replace('"Q?"', '3'), 'study.question'),
    (_TEXT.replace('arm = "b"', 'arm = "c"'), "one.toml: .*'c'.* a, b"),
    (_TEXT.replace('than = "a"', 'than = "baseline majorty"'),
     "'baseline majorty': did you mean baseline majority"),
    (_TEXT.replace('than = "a"', 'than = "b"'), 'compares b with itself'),
    (_TEXT.replace('set.train.steps = 7', 'grid.train.steps = [7, 8]'),
     'runs 2 has several values of train.steps'),
    (_TEXT.replace('arms = {a = "transformer"}', 'models = ["gla"]'),
     "runs 1: .*'arms'"),
    (_TEXT.replace('title', 'axis = "train.batch_size"\ntitle'),
     'the axis train.batch_size')])
def test_a_bad_study_is_named(tmp_path, text, word):
  with pytest.raises(errors.UserError, match=word):
    runs_file.read(_write(tmp_path, text))


def test_an_arm_has_one_config_in_a_column(tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  path = _write(tmp_path, _TEXT.replace('{b =', '{a =').partition('claims')[0])
  with pytest.raises(errors.UserError, match='the arm a has several configs'):
    study.cells(runs_file.read(path).study, str(path), tmp_path)


def test_an_arm_with_a_search_has_the_rows_that_validation_chose(
    tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  path = _write(tmp_path, _TEXT.replace(
      'tasks = ["listops_mini", "text_mini"]',
      'tasks = ["listops_mini"]\nsearch_share = 2\n'
      'search.train.learning_rate = [0.1, 0.2]'))
  found = runs.read(str(path))
  assert [len(unit.settings) for unit in runs.units(found)] == [2, 2]
  known = {run.repetition: _result(int(run.seed), [[hits, 9], [0, 0]], chosen)
           for run in found if not run.trial_of
           for chosen in ['0.2' in run.title]
           for hits in [5 + chosen]}
  monkeypatch.setattr(status, 'recorded', lambda *_: known)
  cells = study.cells(runs_file.read(path).study, str(path), tmp_path)
  assert {key: row.accuracies for key, row in cells.items()} == {
      (arm, 'listops_mini'): [6 / 15] * 2 for arm in 'ab'}


def _row(*hits, examples=1000):
  """Returns a row with one run for each number of right answers."""
  return Row([_result(seed, [[right, examples - right], [0, 0]])
              for seed, right in enumerate(hits)])


def _result(seed, confusion, searched=False, longer=None):
  values = copy.deepcopy(RUN)
  values.update(seed=seed, test=scored.of(confusion), longer=longer or {},
                floors={'majority': 0.5})
  values['config']['seed'] = seed
  if searched:
    rate = 'train.learning_rate'
    values['config']['train']['learning_rate'] = 0.2
    values['search'] = {
        'tried': 2, 'grid': {rate: [0.1, 0.2]}, 'seed': 0,
        'chosen_by': 'validation accuracy',
        'scores': [[{rate: 0.1}, 0.6], [{rate: 0.2}, 0.7]]}
  return result.validate(values)


def _study(*claims):
  return runs_file.Study(
      title='', question='', source='', reported='',
      claims=[runs_file.Claim(**claim) for claim in claims])


def _answers(a, b, **claim):
  return study.answers(_study({'text': '', 'arm': 'a', 'than': 'b', **claim}), {
      ('a', 'x'): a, ('b', 'x'): b})


@pytest.mark.parametrize('expected,verdict', [
    ('higher', 'holds'), ('lower', 'does not hold'), ('equal', 'does not hold'),
    ('', 'higher')])
def test_arms_are_compared_by_welch(expected, verdict):
  a, b = (700, 720, 731), (600, 640, 611, 626)
  one, = _answers(_row(*a), _row(*b), expected=expected)
  known = scipy.stats.ttest_ind(np.array(a) / 1000, np.array(b) / 1000,
                                equal_var=False)
  interval = known.confidence_interval()
  # Rounding to whole examples adds 1 / 12 of an example to each variance.
  np.testing.assert_allclose([one.low, one.high], interval, atol=1e-3)
  assert one.seeds == (3, 4)
  assert one.verdict == verdict


def test_a_claim_is_tested_in_its_own_columns():
  one = _study({'text': '', 'arm': 'a', 'than': 'b', 'expected': 'higher',
                'at': ['y', 'z']})
  found = study.answers(one, {
      (arm, column): _row(first, first + 10) for column, arms in (
          ('x', (700, 300)), ('y', (600, 500)), ('z', (400, 100)))
      for arm, first in zip('ab', arms, strict=True)})
  assert [answer.column for answer in found] == ['y', 'z']
  np.testing.assert_allclose([answer.difference for answer in found],
                             [0.1, 0.3])
  for answer in found:
    low, high = (points(x) for x in (answer.low, answer.high))
    assert f'{low} to {high} |' in study._compared(one, found)


@pytest.mark.parametrize('draw', [
    study_figure.arms,
    lambda one, found: study_figure.arms(one.model_copy(
        update={'axis': 'train.steps'}), found),
    lambda one, found: study_figure.runtime(
        found, [{'arm': 'a', 'task': 'x', 'seconds per step': 0.1}])])
def test_intervals_go_from_their_low_to_their_high_end(draw, monkeypatch):
  monkeypatch.setattr(study_figure, 'saved', lambda fig, form: fig.axes[0])
  row = _row(990)  # near 100%, the ends are not equally far from the mean
  ax = draw(_study(), {('a', 'x'): row})
  bars = [segment for part in ax.collections
          for segment in part.get_segments() if np.ptp(segment)]
  ends = sorted(bars[0][:, np.ptp(bars[0], axis=0).argmax()])
  np.testing.assert_allclose(
      ends, [100 * row.interval.low, 100 * row.interval.high])
  assert row.interval.high - row.mean < 0.9 * (row.mean - row.interval.low)
  shown = ' to '.join(percent(x, row.digits) for x in row.interval[:2])
  assert f'({shown})' in study._table(_study(), {('a', 'x'): row})


def test_a_small_difference_is_no_difference():
  for expected, verdict in (('equal', 'no difference found'),
                            ('higher', 'not shown'),
                            ('', 'no difference found')):
    one, = _answers(_row(700, 650, 731), _row(690, 720), expected=expected)
    assert one.verdict == verdict


def test_the_correction_is_over_all_claims():
  """One p-value of 0.03 is significant, but not among three."""
  samples = Sample((0.70, 0.72), 10**6), Sample((0.75, 0.77), 10**6)
  p, *_ = study._tested(*samples)
  known = scipy.stats.ttest_ind(*(s.accuracies for s in samples),
                                equal_var=False).pvalue
  np.testing.assert_allclose(p, known, rtol=1e-6)
  a, b = _row(700, 720), _row(765, 783)
  assert _answers(a, b, expected='lower')[0].verdict == 'holds'
  three = _study(*(
      {'text': '', 'arm': 'a', 'than': than, 'expected': 'lower'}
      for than in 'bcd'))
  found = study.answers(three, {
      (name, 'x'): row for name, row in (
          ('a', a), ('b', b), ('c', a), ('d', a))})
  assert [one.verdict for one in found] == ['not shown'] * 3


def test_a_claim_may_be_about_a_baseline():
  one, = _answers(_row(700), None, than='baseline majority', expected='higher')
  assert one.verdict == 'holds'
  np.testing.assert_allclose(one.difference, 0.2)
  one, = _answers(_row(510), None, than='baseline majority', expected='')
  assert one.verdict == 'no difference found'
  assert not _answers(_row(510), None, than='baseline nobody')


def test_measured_rows_are_compared_by_a_column():
  one = _study({'text': '', 'arm': 'super', 'than': 'standard',
                'expected': 'lower', 'at': ['parameters']})
  rows = [{'layer': 'standard', 'parameters': 12}, {'layer': 'super',
                                                    'parameters': 9}]
  found, = study.measured_answers(one, rows)
  assert (found.difference, found.verdict) == (-3, 'holds (untested)')


def test_measured_rows_of_one_task_are_compared():
  claim = {'text': 'A is cheap', 'arm': 'a', 'than': 'b', 'expected': 'lower',
           'at': ['s']}
  one = _study(claim).model_copy(update={
      'paper': {'s': {'a, y': 2.0, 'b, y': 5.0}}})
  rows = [{'arm': arm, 'task': task, 's': s} for arm, task, s in (
      ('a', 'x', 4), ('b', 'x', 3), ('a', 'y', 1), ('b', 'y', 9))]
  found = study.measured_answers(one, rows)
  assert [(a.column, a.difference, a.verdict, study._of_paper(one, a))
          for a in found] == [
              ('s, x', 1, 'does not hold (untested)', '–'),
              ('s, y', -8, 'holds (untested)', '-3')]
  table = [line.split(' | ') for line in
           study._measured_table(one, rows).splitlines()]
  assert [cells[2:] for cells in table[2:]] == [
      ['4', '– |'], ['3', '– |'], ['1', '2.000 |'], ['9', '5.000 |']]


@pytest.mark.parametrize('shift,spread,verdict', [
    (200, 20, 'holds'), (500, 800, 'no difference found'),
    (3000, 20, 'does not hold')])
def test_arms_are_equal_if_the_interval_is_within_a_point(
    shift, spread, verdict):
  first = np.array([70_000, 70_100, 69_900, 70_040])
  a, b = (_row(*more.tolist(), examples=100_000) for more in (
      first, first + shift + spread * np.array([1, -1, 1, -1])))
  one, = _answers(a, b, expected='equal')
  test = scipy.stats.ttest_ind(a.accuracies, b.accuracies, equal_var=False)
  p, (low, high) = test.pvalue, test.confidence_interval()
  assert verdict == ('holds' if max(-low, high) <= 0.01 else 'does not hold'
                     if p < 0.05 else 'no difference found')
  assert one.verdict == verdict


def test_numbers_of_the_paper_stand_beside_ours():
  one = _study({'text': 'A is better.', 'arm': 'a', 'than': 'b',
                'expected': 'higher'}).model_copy(update={
                    'paper': {'x': {'a': 78.25, 'b': 77.5}},
                    'untested': ['C: no data.']})
  found = {(arm, column): _row(first, first + 10) for arm, column, first in (
      ('a', 'x', 800), ('b', 'x', 700), ('a', 'y', 700), ('b', 'y', 700))}
  head, _, a, b = (
      line.split(' | ') for line in study._table(one, found).splitlines())
  assert head[1:] == ['x', 'x: paper', 'y |']
  assert (a[2], b[2]) == ('78.25', '77.50')
  answers = study.answers(one, found)
  assert [study._of_paper(one, answer) for answer in answers] == ['+0.75', '–']
  assert study._summary(one, answers) == [
      ('holds', 'A is better (x)'), ('not shown', 'A is better (y)'),
      ('cannot be tested here', 'C: no data.')]
  assert study._summary(one, []) == [
      ('no runs yet', 'A is better'), ('cannot be tested here', 'C: no data.')]


def _with_column(folder, monkeypatch, field, column, results):
  """Returns a study with a further column of text_mini, and its cells."""
  monkeypatch.chdir(ROOT)
  path = _write(folder, _TEXT.replace('claims', f'{field}\nclaims').replace(
      'than = "a", ', f'than = "a", at = ["{column}"], '))
  some = [r.repetition for r in runs.read(str(path)) if 'text_mini' in r.config]
  monkeypatch.setattr(study.status, 'recorded', lambda *_: dict(zip(
      some, results, strict=True)))
  of = runs_file.read(path).study
  return of, study.cells(of, str(path), folder)


def test_false_positives_are_a_column_of_their_own(tmp_path, monkeypatch):
  """One of 6 and two of 4 negative examples were called positive."""
  column = 'text_mini: false positives'
  of, cells = _with_column(
      tmp_path, monkeypatch, 'false_positives = ["text_mini"]', column,
      [_result(i, [[6 - i, i], [0, 4]]) for i in range(4)])
  np.testing.assert_allclose(
      [cells[arm, column].accuracies for arm in 'ab'],
      [[0, 1 / 6], [2 / 6, 3 / 6]])
  assert [cells[arm, 'text_mini'].accuracies for arm in 'ab'] == [
      [1, 0.9], [0.8, 0.7]]
  one, = study.answers(of, cells)
  assert one.column == column
  np.testing.assert_allclose(one.difference, 2 / 6)


def test_lengths_are_columns_of_their_own(tmp_path, monkeypatch):
  column, scores = 'text_mini, length 512', [0.9, 0.8, 0.2, 0.3]
  made = tmp_path, monkeypatch, 'longer = {text_mini = ["512"]}', column
  of, cells = _with_column(*made, [
      _result(i, [[6, 0], [0, 4]], longer={
          '512': {'accuracy': score, 'loss': 0.5, 'examples': 1000}})
      for i, score in enumerate(scores)])
  assert [cells[arm, column].accuracies for arm in 'ab'] == [
      scores[:2], scores[2:]]
  one, = study.answers(of, cells)
  test = scipy.stats.ttest_ind(scores[2:], scores[:2], equal_var=False)
  np.testing.assert_allclose((one.difference, one.p), (-0.6, test.pvalue))
  # Models that cannot read this length have no such test.
  assert not study.answers(*_with_column(
      *made, [_result(0, [[6, 0], [0, 4]])] * 4))


@pytest.mark.full
def test_the_committed_page_is_that_of_the_records():
  path = ROOT / 'docs' / 'studies.md'
  made = study.made(path, ROOT / 'lra' / 'results')
  assert made.pop(path).decode() == path.read_text()
  assert {p.name for p in made} == {
      p.name for p in (ROOT / 'lra/results/studies').glob('*.svg')}


def test_the_page_is_beside_other_records(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(runs_file, 'names', lambda: ['int8'])  # has no runs
  assert main.main(['board', '--studies', f'--results_dir={tmp_path}']) == 0
  assert capsys.readouterr().out == f'wrote {tmp_path}/studies.md\n'
  assert '[int8](#int8)' in (tmp_path / 'studies.md').read_text()


def test_a_measurement_without_rows_is_refused(tmp_path):
  path = tmp_path / 'x.json'
  path.write_text('{"rows": 3}')
  with pytest.raises(errors.UserError, match='x.json'):
    study._measured(pathlib.Path(path))


@pytest.mark.parametrize('claim,word', [
    ({'arm': 'c', 'than': 'r', 'at': ['size']}, "'c'"),
    ({'arm': 'r', 'than': 'd', 'at': ['size']}, "'d'"),
    ({'arm': 'a', 'than': 'r', 'at': ['y']}, "'y'")])
def test_a_claim_about_nothing_is_refused(claim, word):
  one = _study({'text': 'T', **claim})
  found = {('a', 'x'): None}
  with pytest.raises(errors.UserError, match=word):
    study.check_claims('one.toml', one, found, [{'layer': 'r', 'size': 3}])


@pytest.mark.parametrize('paper,word', [
    ({'z': {'r': 1}}, "'z'"), ({'size': {'q': 1}}, "'q'")])
def test_a_number_of_the_paper_beside_nothing_is_refused(paper, word):
  one = _study().model_copy(update={'paper': paper})
  with pytest.raises(errors.UserError, match=f'study.paper.*{word}'):
    study.check_claims('one.toml', one, {('a', 'x'): None},
                       [{'layer': 'r', 'size': 3}])


def test_claims_about_rows_that_are_not_measured_yet_are_left_out():
  one = _study({'text': 'T', 'arm': 'r', 'than': 's', 'at': ['size']})
  study.check_claims('one.toml', one, {('a', 'x'): None}, [])
  assert not study.measured_answers(one, [])
