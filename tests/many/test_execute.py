"""Tests the line that names, before training, what runs will write."""

import dataclasses
import json
import pathlib
import types

import ml_collections
import pytest

from lra.board import publish
from lra.board.site import Place
from lra.many import execute
from lra.schema import result

RECORD = pathlib.Path(__file__).parents[1] / 'board' / 'data' / 'result.json'


@pytest.mark.parametrize('model, named', [
    ({'clip_eigenvalues': False}, True), ({'clip_eigenvalues': True}, False),
    ({}, False)])
def test_a_diverged_run_hears_of_eigenvalues_that_could_leave(
    model, named, tmp_path):
  values = json.loads(RECORD.read_text())
  values.update(status='diverged', test=None)
  values['config']['model'].update(model)
  said = execute.summary(result.validate(values), tmp_path)
  assert 'config.train.learning_rate' in said
  assert ('config.model.clip_eigenvalues=True' in said) == named


def test_the_files_that_runs_will_write_are_named(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  finished = result.validate(json.loads(RECORD.read_text()))
  run = types.SimpleNamespace(
      folder=pathlib.Path('runs/here'),
      config=ml_collections.ConfigDict(finished.config))
  options = execute.Options(Place(tmp_path / 'results', tmp_path / 'page.md'))
  for said in (execute.announced([run] * 3, options, False),
               execute.announced(
                   [run] * 3, dataclasses.replace(options, test=False), True)):
    assert 'page.md' not in said and '3 run directories' in said
  later = dataclasses.replace(options, record_later=True)
  assert 'not recorded' in execute.announced([run], options, False)
  assert 'not recorded' not in execute.announced([run], later, False)
  said = execute.announced([run], options, True)
  assert '--norecord' in said
  publish.publish(finished, options.place)
  written = [path.relative_to(tmp_path) for path in tmp_path.rglob('*')
             if path.is_file() and not path.name.startswith('.')]
  assert len(written) > 3
  named = [word.rstrip('.,') for word in said.split()]
  for path in written:
    assert {str(path), *map(str, path.parents)} - {'.'} & {*named}, path
  # Now there is a record, which only --replace changes.
  said = execute.announced([run], options, True)
  assert 'page.md' not in said and 'not changed' in said
  assert 'page.md' in execute.announced(
      [run], dataclasses.replace(options, replace=True), True)


def test_the_summary_says_how_many_devices_a_run_had(tmp_path):
  finished = result.validate(json.loads(RECORD.read_text()))
  for number, said in ((1, f'on {finished.device}'), (3, 'on 3 x ')):
    assert said in execute.summary(finished.model_copy(
        update={'num_devices': number}), tmp_path)
