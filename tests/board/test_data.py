"""Compares the results as data with the records that they were made of."""

import csv
import io
import json
import math

import pandas
import pytest

import lra
from lra.board import data, publish, site
from lra.core.errors import UserError
from tests.helpers.page import RUNS, SPEEDS, Place, make

# These invented records name real protocols but do not have their settings.
pytestmark = pytest.mark.usefixtures('no_protocols')


def _read(text):
  return list(csv.DictReader(io.StringIO(text, newline=''), strict=True))


def _tables(folder):
  found = site.load(site.Place(folder, folder / 'leaderboard.md'))
  return data.csv_files(found.boards, found.speeds)


def test_the_lines_are_those_of_the_records(tmp_path):
  Place(tmp_path, RUNS)
  rows, runs = map(_read, _tables(tmp_path).values())
  of_two = next(row for row in rows if row['seeds'] == '2')
  right = [130 / 200, 131 / 200]
  mean = sum(right) / 2
  # Student's t with one degree of freedom: 12.7062 standard errors of the mean.
  half = 12.7062 * math.dist(right, [mean, mean]) / math.sqrt(2)
  assert float(of_two['accuracy']) == pytest.approx(mean, abs=1e-6)
  assert float(of_two['high']) == pytest.approx(mean + half, abs=1e-5)
  assert (of_two['interval_over'], of_two['baseline_name']) == (
      'seeds', 'n-grams')
  speed = {name: SPEEDS['models']['transformer']['seconds'][0] / m['seconds'][0]
           for name, m in SPEEDS['models'].items()}
  for row in rows:
    expected = speed.get(row['model'], '')
    assert row['relative_speed'] == str(expected), row
  assert len(rows) == 4 and len(runs) == len(RUNS)
  for run in runs:
    record = json.loads((tmp_path / run['record']).read_text())
    assert run['status'] == record['status']
    assert run['accuracy'] == (
        str(record['test']['accuracy']) if record['test'] else '')
    assert int(run['num_params']) == record['num_params']


def test_the_files_are_beside_the_page_and_go_with_the_last_row(tmp_path):
  place = Place(tmp_path, RUNS[:1])
  place.write()
  for name, text in _tables(tmp_path).items():
    assert (place.details / name).read_text('utf-8') == text
    assert f'[{name}](leaderboard/{name})' in place.page.read_text('utf-8')
  for path in place.runs.rglob('*.json'):
    path.unlink()
  publish.write(place.place())
  assert not (place.details / data.RUNS).exists()


def test_longer_tests_and_the_digits_of_floats(tmp_path):
  longer = {'64': {'examples': 9, 'accuracy': 1 / 3, 'loss': 1.0}}
  place = Place(tmp_path, [make(longer=longer)])
  run, = data.of_runs(site.load(place.place()).boards)
  assert run['longer'] == '64=0.333333'


def test_no_text_is_a_formula(tmp_path):
  place = Place(tmp_path, [make(device='=cmd|a!b', kernel='-1+"2",\n3')])
  run, = _read(data.table(data.of_runs(site.load(place.place()).boards)))
  assert (run['device'], run['kernel']) == ("'=cmd|a!b", "'-1+\"2\", 3")


def test_the_frame_is_the_file(tmp_path):
  Place(tmp_path, RUNS)
  for each, text in zip(('row', 'run'), _tables(tmp_path).values(),
                        strict=True):
    kept = pandas.read_csv(io.StringIO(text))
    found = lra.results(tmp_path, each)
    assert list(found.columns) == list(kept.columns)
    assert found.accuracy.to_list() == pytest.approx(
        kept.accuracy.to_list(), nan_ok=True)
    assert found.model.to_list() == kept.model.to_list()


@pytest.mark.parametrize('given, culprit', [
    (('nowhere',), 'nowhere'), (('gs://bucket',), 'gs://bucket'),
    (('nowhere', 'seed'), "'seed'")])
def test_what_cannot_be_read_is_named(given, culprit):
  with pytest.raises(UserError, match=culprit):
    lra.results(*given)
