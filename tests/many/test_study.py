"""Tests studies: their files, the comparison of arms, and the page."""

import copy
import json
import pathlib

import numpy as np
import pytest
import scipy.stats

from lra.board.rows import Row
from lra.board.statistics import Sample
from lra.core import errors
from lra.many import best, study, sweep
from lra.many import study_compared as compared
from lra.many import study_page as page
from lra.schema import result
from tests.helpers import scored
from tests.helpers.paths import ROOT

RUN = json.loads((ROOT / 'tests/board/data/result.json').read_text())
_TEXT = '''
title = "T"
question = "Q?"
source = "S"
reported = "R"
tasks = ["listops_mini", "text_mini"]
seeds = "0-1"

[[arms]]
name = "a"
line = "configs/transformer.py:{task}"

[[arms]]
name = "b"
line = "configs/transformer.py:{task} train.steps=7"

[[claims]]
text = "B is better."
arm = "b"
than = "a"
expected = "higher"
'''


def _write(folder, text=_TEXT):
  path = folder / 'one.toml'
  path.write_text(text)
  return path


def test_a_study_is_a_sweep_whose_arms_are_no_settings(tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  entries = sweep.read(_write(tmp_path))
  assert [(e.arm, e.folder.parts[1], e.seed) for e in entries] == [
      (arm, task, seed) for arm in 'ab' for task in
      ('listops_mini', 'text_mini') for seed in '01']
  assert [len(unit) for unit in best.units(entries)] == [1] * 4


@pytest.mark.parametrize('text,word', [
    (_TEXT + 'kind = 3', 'claims.0.kind'),
    (_TEXT.replace('"higher"', '"better"'), 'claims.0.expected'),
    (_TEXT.replace('"Q?"', '3'), 'question'),
    ('title = ', 'one.toml'),
    (_TEXT.replace('arm = "b"', 'arm = "c"'), "one.toml: .*'c'.* a, b"),
    (_TEXT.replace('than = "a"', 'than = "baseline majorty"'),
     "'baseline majorty': did you mean baseline majority"),
    (_TEXT.replace('than = "a"', 'than = "b"'), 'compares b with itself'),
    (_TEXT.replace('steps=7', 'steps=[7,8]'), 'one.toml: .* b .*train.steps'),
])
def test_a_bad_study_is_named(tmp_path, text, word):
  with pytest.raises(errors.UserError, match=word):
    study.read(_write(tmp_path, text))
  with pytest.raises(errors.UserError, match='none.toml'):
    study.read(tmp_path / 'none.toml')


def _row(*hits, examples=1000):
  """Returns a row with one run for each number of right answers."""
  runs = []
  for seed, right in enumerate(hits):
    values = copy.deepcopy(RUN)
    values.update(seed=seed, test=scored.of(
        [[right, examples - right], [0, 0]]), floors={'majority': 0.5})
    values['config']['seed'] = seed
    runs.append(result.validate(values))
  return Row(runs)


def _answers(a, b, **claim):
  one = study.Study(
      name='one', title='', question='', source='', reported='', claims=[
          study.Claim(**{'text': '', 'arm': 'a', 'than': 'b', **claim})])
  return compared.answers(one, {
      ('a', 'x'): a, ('b', 'x'): b})


@pytest.mark.parametrize('expected,verdict', [
    ('higher', 'same'), ('lower', 'opposite'), ('equal', 'opposite'),
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


def test_a_small_difference_is_no_difference():
  for expected, verdict in (('equal', 'no difference found'),
                            ('higher', 'not shown'),
                            ('', 'no difference found')):
    one, = _answers(_row(700, 650, 731), _row(690, 720), expected=expected)
    assert one.verdict == verdict


def test_the_correction_is_over_all_claims():
  """One p-value of 0.03 is significant, but not among three."""
  samples = Sample((0.70, 0.72), 10**6), Sample((0.75, 0.77), 10**6)
  p = compared._p_value(*samples)
  known = scipy.stats.ttest_ind(*(s.accuracies for s in samples),
                                equal_var=False).pvalue
  np.testing.assert_allclose(p, known, rtol=1e-6)
  a, b = _row(700, 720), _row(765, 783)
  assert _answers(a, b, expected='lower')[0].verdict == 'same'
  three = study.Study(
      name='', title='', question='', source='', reported='', claims=[
          study.Claim(text='', arm='a', than=than, expected='lower')
          for than in ('b', 'c', 'd')])
  found = compared.answers(three, {
      (name, 'x'): row for name, row in (
          ('a', a), ('b', b), ('c', a), ('d', a))})
  assert [one.verdict for one in found] == ['not shown'] * 3


def test_a_claim_may_be_about_a_baseline():
  one, = _answers(_row(700), None, than='baseline majority', expected='higher')
  assert one.verdict == 'same'
  np.testing.assert_allclose(one.difference, 0.2)
  one, = _answers(_row(510), None, than='baseline majority', expected='')
  assert one.verdict == 'no difference found'
  assert not _answers(_row(510), None, than='baseline nobody')


def test_measured_rows_are_compared_by_a_column():
  one = study.Study(
      name='', title='', question='', source='', reported='', claims=[
          study.Claim(text='', arm='super', than='standard', expected='lower',
                      at=['parameters'])])
  rows = [{'layer': 'standard', 'parameters': 12}, {'layer': 'super',
                                                    'parameters': 9}]
  found, = compared.measured_answers(one, rows)
  assert (found.difference, found.verdict) == (-3, 'same (untested)')


@pytest.mark.full
def test_the_committed_page_is_that_of_the_records():
  path = ROOT / 'docs' / 'studies.md'
  made = page.made(path, ROOT / 'lra' / 'results')
  assert made.pop(path).decode() == path.read_text()
  assert {p.name for p in made} == {
      p.name for p in (ROOT / 'lra/results/studies').glob('*.svg')}


def test_a_measurement_without_rows_is_refused(tmp_path):
  path = tmp_path / 'x.json'
  path.write_text('{"rows": 3}')
  with pytest.raises(errors.UserError, match='x.json'):
    page._measured(pathlib.Path(path))


@pytest.mark.parametrize('claim,word', [
    ({'arm': 'c', 'than': 'r', 'at': ['size']}, "'c'"),
    ({'arm': 'r', 'than': 'd', 'at': ['size']}, "'d'"),
    ({'arm': 'a', 'than': 'r', 'at': ['y']}, "'y'")])
def test_a_claim_about_nothing_is_refused(claim, word):
  one = study.Study(
      name='', title='', question='', source='', reported='', claims=[
          study.Claim(text='T', **claim)])
  found = {('a', 'x'): None}
  with pytest.raises(errors.UserError, match=word):
    page._check_claims('one.toml', one, found, [{'layer': 'r', 'size': 3}])


def test_claims_about_rows_that_are_not_measured_yet_are_left_out():
  one = study.Study(
      name='', title='', question='', source='', reported='', claims=[
          study.Claim(text='T', arm='r', than='s', at=['size'])])
  page._check_claims('one.toml', one, {('a', 'x'): None}, [])
  assert not compared.measured_answers(one, [])


@pytest.mark.parametrize('text,word', [
    (_TEXT.replace('tasks =', 'axis = "train.batch_size"\ntasks ='),
     'train.batch_size'),
    (_TEXT.replace('name = "b"', 'name = "a"').partition('[[claims]]')[0],
     'the arm a')])
def test_columns_and_arms_have_one_config(tmp_path, monkeypatch, text, word):
  monkeypatch.chdir(ROOT)
  path = _write(tmp_path, text)
  with pytest.raises(errors.UserError, match=word):
    compared.cells(study.read(path), path, tmp_path)
