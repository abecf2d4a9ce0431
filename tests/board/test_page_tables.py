"""Tests the tables of a task and the sentences below them."""

import re

import pytest

from lra.core import bits
from tests.helpers.page import RUNS, Place, make, scores

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
  assert not sentence(make('mqa'), make('gqa'))  # answers are not kept
  assert not sentence(one('mqa'), one('gqa'), one('mqa', 1),
                      one('gqa', 1, swapped=True))


def test_a_table_says_by_what_rows_are_told_apart(tmp_path):
  """The sentence says whether rows are compared by seeds or by examples.

  Seeds with 130, 131 and 132 of 200 right have a deviation of 0.5%. Rows on
  other data do not count.
  """
  def seeds(model, more, data='feed00000000'):
    return [make(model, seed, right=130 + seed + more, data_fingerprint=data)
            for seed in range(3)]

  def said(name, runs):
    return re.findall('^Rows are compared by (seeds|test examples)'
                      '(?:, not by seeds)?: (.*) pairs '
                      r'(?:of rows )?differ(?: significantly)?'
                      r'\.'
                      '(?:.* row is ([0-9.]*))?',
                      Place(tmp_path / name, runs).render(), re.MULTILINE)

  assert said('same', seeds('local', 0) + seeds('mqa', 2)) == [
      ('seeds', '0 of 1', '0.52')]
  assert not said('alone', seeds('local', 0))
  assert said('single', [make('local'), make('mqa', right=190)]) == [
      ('test examples', '1 of 1', '')]
  assert said('foreign', [
      *seeds('local', 0), make('gqa'), *seeds('mqa', 2, 'beef')]) == [
          ('test examples', '0 of 1', '')]


def test_a_wide_transformer_does_not_become_the_budget(tmp_path):
  wide = make(params=9000)
  wide['config']['encoder']['width'] = 640
  text = Place(tmp_path, [*RUNS, wide]).render()
  assert '; +10.1% parameters** |' in text
  assert '| **9,000** |' in text and '| 9.00 |' in text
  assert '**+800.0% parameters**' in text


def test_a_baseline_is_compared_by_the_same_examples(tmp_path):
  """A row with 110 of 200 right is compared with a baseline with 100 right.

  The difference is significant if 10 to 0 examples differ, but not if 100 to
  90 differ.
  """
  flags = [True] * 100 + [False] * 100

  def line(answers):
    floors = {'task': 'text_mini', 'fingerprint': 'feed00000000', 'floors': {
        'rule': {'accuracy': 0.5, 'how': 'by hand', 'examples': 200,
                 'correct': bits.pack(flags)}}}
    run = make(test=scores(110, 90, correct=bits.pack(answers)))
    return Place(tmp_path / str(sum(answers[:100])), [run], (floors,)).render()

  same = line([True] * 110 + [False] * 90)
  assert '| +5.0 | 1 |' in same and 'No row is' not in same
  other = line([True] * 10 + [False] * 90 + [True] * 100)
  assert '| +5.0 n.s. | 1 |' in other
  assert 'significantly better than the baseline "rule" (50.00 %)' in other


@pytest.mark.parametrize('arguments, noted', [
    ({}, True), ({'released': False}, True), ({'released': True}, False)])
def test_a_row_of_other_rules_than_the_released_ones_is_noted(
    tmp_path, arguments, noted):
  """A record without the field is older than it."""
  run = make('retnet')
  run['config']['model'] |= arguments
  text = Place(tmp_path / 'page', [run]).render()
  assert ('released=False' in text) == noted
