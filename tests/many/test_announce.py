"""Tests the line that names, before training, what runs will write."""

import json
import pathlib
import types

import ml_collections
import pytest

from lra.board import publish
from lra.board.site import Place
from lra.many import announce
from lra.schema import result

RECORD = pathlib.Path(__file__).parents[1] / 'board' / 'data' / 'result.json'


@pytest.fixture
def made():
  """Returns a finished run: its experiment, as far as needed, and result."""
  finished = result.validate(json.loads(RECORD.read_text()))
  return types.SimpleNamespace(
      folder=pathlib.Path('runs/here'),
      config=ml_collections.ConfigDict(finished.config)), finished


def test_the_files_of_a_recorded_run_are_named(made, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  run, finished = made
  place = Place(tmp_path / 'results', tmp_path / 'page.md')
  how = {'tested': True, 'recorded': True}
  said = announce.text([run], place, replace=False, **how)
  assert '--norecord' in said
  publish.publish(finished, place)
  written = [path.relative_to(tmp_path) for path in tmp_path.rglob('*')
             if path.is_file() and not path.name.startswith('.')]
  assert len(written) > 3
  named = [word.rstrip('.,') for word in said.split()]
  for path in written:
    assert {str(path), *map(str, path.parents)} - {'.'} & {*named}, path
  # Now there is a record, which only --replace changes.
  said = announce.text([run], place, replace=False, **how)
  assert 'page.md' not in said and 'not changed' in said
  assert 'page.md' in announce.text([run], place, replace=True, **how)


@pytest.mark.parametrize('how', [
    {'tested': True, 'recorded': False}, {'tested': False, 'recorded': True}])
def test_a_run_without_a_record_names_no_page(made, tmp_path, how):
  said = announce.text(
      [made[0]] * 3, Place(tmp_path, tmp_path / 'page.md'), replace=False,
      **how)
  assert 'page.md' not in said and '3 run directories' in said
