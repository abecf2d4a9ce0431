"""Records that are not sound are named, and nothing is written."""

import copy
import json
import pathlib

import pytest

from lra.errors import UserError
from lra.report import leaderboard, result

_DATA = pathlib.Path(__file__).parent / 'data'
RUN = json.loads((_DATA / 'result.json').read_text())
FLOORS = json.loads((_DATA / 'floors.json').read_text())


class Place:
  """Folders with sound records."""

  def __init__(self, folder):
    self.runs, self.floors = folder / 'runs', folder / 'floors'
    self.page, self.figures = folder / 'page.md', folder / 'figures'
    for path in (self.runs, self.floors):
      path.mkdir()
    self.put('good.json', {**copy.deepcopy(RUN), 'seed': 1})
    (self.floors / 'text_mini.json').write_text(json.dumps(FLOORS))

  def put(self, name, run):
    if run:
      run['config']['seed'] = run['seed']
    path = self.runs / name
    path.write_text(json.dumps(run))
    return path

  def write(self):
    leaderboard.write(self.page, self.runs, self.floors,
                      figures_dir=self.figures)

  def refuses(self):
    """Asserts that no page is made; returns the sentence that says why."""
    self.page.write_text('before')
    with pytest.raises(UserError) as error:
      self.write()
    assert self.page.read_text() == 'before' and not self.figures.exists()
    assert '\n' not in str(error.value)
    return str(error.value)


@pytest.fixture
def place(tmp_path):
  return Place(tmp_path)


def test_sound_records_make_a_page(place):
  place.put('other.json', copy.deepcopy(RUN))
  place.write()
  assert '| transformer | – | – | 65.00 | 65.00 | +15.00 | 2 |' in (
      place.page.read_text('utf-8'))


def without(field):
  return lambda run: run.pop(field)


def change(*path, value):
  def apply(run):
    for name in path[:-1]:
      run = run[name]
    run[path[-1]] = value
  return apply


@pytest.mark.parametrize('spoil, reason', [
    *((without(field), f"'{field}' is missing") for field in RUN),
    (lambda run: run['test'].pop('f1'), "'test.f1' is missing"),
    (change('test', 'accuracy', value=1.2), 'not a fraction in [0, 1]'),
    (change('test', 'accuracy', value=65.0), 'not a fraction in [0, 1]'),
    (change('test', 'accuracy', value='0.65'), 'is not a number'),
    (change('test', 'accuracy', value=0.66), 'gives accuracy 0.650000'),
    (change('test', 'accuracy', value=float('nan')), 'no JSON number'),
    (change('test', 'confusion', value=[[130, 70]]), 'is not 2 x 2'),
    (change('test', 'confusion', value=[[65, 71], [65, -1]]), 'than counts'),
    (change('test', 'confusion', value=[[0, 0], [0, 0]]), 'no example'),
    (change('test', value=None), "'test' is not an object"),
    (change('val', 'loss', value=True), "'val.loss' is not a number"),
    (change('status', value='fine'), 'not one of ok'),
    (change('task', value='chess'), "says 'text_mini'|'chess' is not a task"),
    (change('model', value='other'), "config says 'transformer'"),
    (change('config', 'seed', value=3), 'config says 3'),
    (change('floors', 'majority', value=50), 'not a fraction in [0, 1]'),
    (change('num_params', value=0), "'num_params' is 0"),
    (change('mixer_params', value=1001), 'larger than'),
    (change('steps', value=1.5), "'steps' is not a count"),
    (change('device', value=''), "'device' is not a text"),
    (change('git_dirty', value='no'), "'git_dirty' is not a boolean"),
])
def test_a_spoilt_record_is_named_and_nothing_is_written(
    place, spoil, reason):
  bad = copy.deepcopy(RUN)
  spoil(bad)
  path = place.runs / 'bad.json'
  path.write_text(json.dumps(bad))
  sentence = place.refuses()
  assert str(path) in sentence
  assert any(r in sentence for r in reason.split('|'))


@pytest.mark.parametrize('data', [
    b'', b'{"task": "text_mini"', b'[]', b'null', b'\xff'])
def test_a_file_that_is_no_record_is_named(place, data):
  (place.runs / 'bad.json').write_bytes(data)
  assert 'bad.json is not a sound result' in place.refuses()


@pytest.mark.parametrize('field', list(RUN))
def test_validate_names_the_field(field):
  result.validate(RUN)
  bad = {k: v for k, v in RUN.items() if k != field}
  with pytest.raises(UserError, match=f"field '{field}' is missing"):
    result.validate(bad)


@pytest.mark.parametrize('status', ['diverged', 'oom', 'stopped'])
def test_an_unfinished_run_needs_no_scores(status):
  result.validate({**RUN, 'status': status, 'val': None, 'test': None,
                   'num_params': None, 'mixer_params': None})


def test_the_same_run_twice_is_refused(place):
  path = place.put('twice.json', {**copy.deepcopy(RUN), 'seed': 1})
  sentence = place.refuses()
  assert f'{path} and ' in sentence and 'are the same run' in sentence


def test_a_run_that_missed_examples_is_refused(place):
  bad = copy.deepcopy(RUN)
  bad['test'] |= {'confusion': [[65, 35], [34, 65]], 'accuracy': 130 / 199}
  place.put('short.json', bad)
  assert 'counts 199 test examples but ' in place.refuses()


@pytest.mark.parametrize('spoil, reason', [
    (without('fingerprint'), "'fingerprint' is missing"),
    (lambda r: r['floors']['majority'].pop('how'), 'majority.how'),
    (change('floors', 'majority', 'accuracy', value=50.0), 'not a fraction'),
    (change('task', value='chess'), 'not a task'),
    (change('task', value='text'), 'rename it to text.json'),
])
def test_a_spoilt_floors_record_is_named(place, spoil, reason):
  bad = copy.deepcopy(FLOORS)
  spoil(bad)
  (place.floors / 'text_mini.json').write_text(json.dumps(bad))
  sentence = place.refuses()
  assert 'text_mini.json' in sentence and reason in sentence
