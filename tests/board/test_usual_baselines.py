"""Tests the package's baselines on a leaderboard that has none of its own."""

import json
import re

import pytest

from lra.board import frame, render
from lra.core import bits
from tests.helpers import scored
from tests.helpers.page import Place, make

pytestmark = pytest.mark.usefixtures('no_protocols')
DATA = 'feed00000000'


@pytest.fixture
def usual(tmp_path):
  """Writes baselines with the first 100 of 200 right; returns their folder."""
  folder = tmp_path / 'usual'
  folder.mkdir()
  for task in ('listops', 'text'):
    (folder / f'{task}.json').write_text(json.dumps({
        'task': task, 'fingerprint': DATA, 'floors': {'rule': {
            'accuracy': 0.5, 'how': 'a rule', 'examples': 200,
            'correct': bits.pack([True] * 100 + [False] * 100)}}}))
  return folder


def run(model='transformer', more=12, data=DATA, **changes):
  """Returns a run with the baseline's 100 examples right, and `more` others."""
  right = [True] * (100 + more) + [False] * (100 - more)
  confusion = [[0] * 10 for _ in range(10)]
  confusion[0][:2] = [sum(right), 200 - sum(right)]
  test = scored.of(confusion, correct=bits.pack(right))
  return make(model, task='listops', test=test, val=None, floors={'rule': 0.5},
              data_fingerprint=data, **changes)


def page(place, usual):
  return place.render(usual=usual)


def test_rows_on_their_data_are_compared_by_the_same_examples(tmp_path, usual):
  """McNemar's test of 12 to 0 examples finds a difference.

  Without the baseline's answers, Fisher's test of 112 and 100 of 200 does not.
  """
  place = Place(tmp_path / 'own', [run()], ())
  text = page(place, usual)
  assert '| +6.0 |' in text and 'No row is' not in text
  assert '| rule | 50.00 | a rule |' in text
  assert '+6.0 n.s.' in page(place, None)


def test_of_other_data_they_say_nothing(tmp_path, usual):
  text = page(Place(tmp_path / 'own', [run(data='beef00000000')], ()), usual)
  assert 'baselines are of data' not in text and 'a rule' not in text
  assert '+6.0 n.s.' in text


def test_ones_own_baselines_come_first(tmp_path, usual):
  own = {'task': 'listops', 'fingerprint': DATA, 'floors': {
      'mine': {'accuracy': 0.25, 'how': 'my rule'}}}
  text = page(Place(tmp_path / 'own', [run()], (own,)), usual)
  assert 'my rule' in text and 'a rule' not in text


@pytest.mark.parametrize('data, said', [(DATA, True), ('beef00000000', False)])
def test_notes_are_of_the_usual_data(tmp_path, usual, data, said):
  place = Place(tmp_path / 'own', [run(data=data)], ())
  assert (render.TEXTS['notes']['listops'] in page(place, usual)) == said
  (board, *_), _ = frame.load(place.runs, place.baselines, usual)
  assert board.usual == said


def test_rows_on_two_data_sets_say_so(tmp_path):
  """Without measured baselines, only rows on the commonest data are ranked."""
  ours = [run('local', 4), run('performer', 8)]
  other = run('shen', 20, 'beef00000000', num_params=900)
  other['floors'] = {'rule': 0.58}
  text = page(Place(tmp_path, [*ours, other], ()), None)
  assert '**data beef0000, ranks are of data feed0000**' in text
  # The baseline and the warning refer to the data of most rows.
  assert '| **baseline** | **50.00** |' in text
  assert 'significantly better than the baseline "rule" (50.00' in text
  assert re.search(r'^\| shen \| \**60.0 ±[0-9.]+ \S*§\** \|', text,
                   re.MULTILINE)
