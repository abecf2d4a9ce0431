"""Tests of data sets that an older or newer version of data_prep made."""

import dataclasses
import json
import pathlib

import pytest

from lra import data_prep
from lra.core import tasks
from lra.core.errors import UserError
from lra.data import prepared
from lra.data_prep import listops, pathfinder, trees

OFFICIAL = pathlib.Path(__file__).parents[1] / 'fixtures' / 'listops'


@pytest.fixture
def few(monkeypatch):
  """Replaces the full ListOps data set by a few short expressions."""
  few = listops.Variant(trees.Process(3, 3, 2, 9), (6, 2, 2))
  monkeypatch.setitem(listops.VARIANTS, 'lra', few)
  return few


def _sizes(data_dir):
  data = prepared.load('listops', data_dir)
  return {name: len(split) for name, split in data.splits.items()}


def test_what_an_older_definition_generated_is_generated_again(
    few, tmp_path, monkeypatch):
  assert _sizes(tmp_path) == {'train': 6, 'val': 2, 'test': 2}
  other = dataclasses.replace(few, sizes=(4, 3, 1))
  monkeypatch.setitem(listops.VARIANTS, 'lra', other)
  assert _sizes(tmp_path) == {'train': 4, 'val': 3, 'test': 1}
  before = prepared.load('listops', tmp_path)
  monkeypatch.setattr(listops.Listops, 'DEFINITION', 2)
  again = prepared.load('listops', tmp_path)
  assert again.info['definition']['number'] == 2
  assert again.fingerprint == before.fingerprint
  folder = tmp_path / 'listops' / 'lra'
  assert sorted(p.name for p in folder.iterdir()) == ['.lock', '1.0.0']


def test_what_knows_no_definition_is_of_an_older_one(few, tmp_path):
  path = data_prep.prepare('listops', tmp_path) / 'metadata.json'
  metadata = json.loads(path.read_text())
  path.write_text(json.dumps(
      {k: v for k, v in metadata.items() if k != 'definition'}))
  data_prep.prepare('listops', tmp_path)
  assert json.loads(path.read_text()) == metadata


def test_what_was_imported_is_refused_until_it_is_imported_again(
    tmp_path, monkeypatch):
  path = data_prep.prepare('listops', tmp_path, OFFICIAL)
  monkeypatch.setattr(listops.Listops, 'DEFINITION', 2)
  before = {p: p.read_bytes() for p in path.iterdir()}
  with pytest.raises(
      UserError, match='another version.*--task=listops --source'):
    prepared.load('listops', tmp_path)
  assert before == {p: p.read_bytes() for p in path.iterdir()}
  data = prepared.load('listops', tmp_path, OFFICIAL)
  assert len(data.splits['train']) == 3
  assert len(prepared.load('listops', tmp_path).splits['train']) == 3


@pytest.mark.parametrize('task', sorted(
    name for name, task in tasks.TASKS.items() if not task.probe))
def test_a_definition_says_what_its_data_is_made_with(task, tmp_path):
  definition = data_prep.make_builder(task, tmp_path).definition()
  assert definition == json.loads(json.dumps(definition))
  assert definition['number'] == 1 and len(definition) > 1


@pytest.mark.parametrize('source', [None, OFFICIAL])
def test_what_a_newer_definition_made_is_left_alone(
    few, tmp_path, monkeypatch, source):
  with monkeypatch.context() as m:
    m.setattr(listops.Listops, 'DEFINITION', 3)
    path = data_prep.prepare('listops', tmp_path, source)
  before = {p: p.read_bytes() for p in path.iterdir()}
  for again in (None, OFFICIAL):
    with pytest.raises(UserError, match='newer version .*definition 3, here 1'):
      data_prep.prepare('listops', tmp_path, again)
  assert before == {p: p.read_bytes() for p in path.iterdir()}


def test_hours_of_drawing_are_announced(tmp_path, monkeypatch, capsys):
  def begin(builder):
    raise KeyboardInterrupt

  monkeypatch.setattr(pathfinder.Pathfinder, 'download_and_prepare', begin)
  for task, long in (('pathx', True), ('pathfinder', False)):
    with pytest.raises(KeyboardInterrupt):
      data_prep.prepare(task, tmp_path)
    assert (' hours on ' in capsys.readouterr().err) == long
