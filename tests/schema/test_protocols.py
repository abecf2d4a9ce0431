"""Tests that a run's changes come from its config, not its record's claims."""

import copy
import json
import pathlib

import pytest

from lra.board import render, site, store
from lra.board.site import Place
from lra.core import paths
from lra.schema import result

RUN = json.loads(
    (pathlib.Path(__file__).parents[1] / 'board/data/result.json').read_text())


def compared(steps=800, changes=None, **fields):
  """Returns the changes that `store.with_changes` finds in a record."""
  run = copy.deepcopy(RUN) | fields | {'steps': steps, 'changes': changes}
  run['config']['train']['steps'] = steps
  run['config']['protocol'] = run['protocol']
  return store.with_changes(result.validate(run)).changes


@pytest.mark.parametrize('claimed', [None, {}, {'train.steps': 301}])
def test_fewer_steps_are_changed_whatever_is_claimed(claimed):
  assert compared(300, claimed) == {'train.steps': 800}


@pytest.mark.parametrize('claimed', [None, {}])
def test_what_is_as_the_protocol_says_is_not_changed(claimed):
  assert compared(800, claimed) == claimed


def test_of_the_arguments_of_a_mixer_the_record_decides():
  assert compared(800, {'model.window': 8}) == {'model.window': 8}
  assert compared(300, {'model.window': 8}) == {
      'model.window': 8, 'train.steps': 800}


def test_of_an_unknown_protocol_the_record_decides():
  assert compared(300, {'train.steps': 9}, protocol='mine') == {
      'train.steps': 9}
  assert compared(300, {}, protocol='mine') == {}


def test_a_record_that_hides_its_changes_is_not_in_the_main_table(tmp_path):
  run = copy.deepcopy(RUN) | {'steps': 300, 'changes': {}}
  run['config']['train']['steps'] = 300
  (tmp_path / 'runs').mkdir()
  (tmp_path / 'runs' / 'run.json').write_text(json.dumps(run))
  pages = render.markdown(site.load(Place(tmp_path, tmp_path / 'page.md')))
  page = pages[tmp_path / 'page' / 'text_mini.md']
  assert '## Protocol `simpletron`, settings changed' in page
  assert '## Protocol `simpletron`\n' not in page
  assert '| train.steps 300 instead of 800 |' in page


def test_committed_records_are_in_the_tables_that_they_say():
  for path in (paths.PACKAGED / 'runs').rglob('*.json'):
    run = result.read(path)
    assert store.with_changes(run) is run, path
