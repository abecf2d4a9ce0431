"""Tests that the error for an invalid result names its file and field."""

import copy
import json
import math
import pathlib
import re
import subprocess

import pytest

from lra.board import frame, publish, render, site
from lra.core import bits, paths
from lra.core.errors import UserError
from lra.schema import result
from tests.helpers import scored
from tests.helpers.page import unlinked

_DATA = pathlib.Path(__file__).parents[1] / 'board/data'
RUN = json.loads((_DATA / 'result.json').read_text())
FLOORS = json.loads((_DATA / 'floors.json').read_text())


class Place:
  """Folders with valid records of a run and of baselines."""

  def __init__(self, folder):
    self.runs, self.baselines = folder / 'runs', folder / 'floors'
    self.page = folder / 'page.md'
    self.place = site.Place(folder, self.page)
    for path in (self.runs, self.baselines):
      path.mkdir()
    self.put('good.json', {**copy.deepcopy(RUN), 'seed': 1})
    (self.baselines / 'text_mini.json').write_text(json.dumps(FLOORS))

  def put(self, name, run):
    if run:
      run['config']['seed'] = run['seed']
      run['test']['loss'] += run['seed'] / 100  # else it counts as a copy
    path = self.runs / name
    path.write_text(json.dumps(run))
    return path

  def write(self):
    publish.write(self.place)

  def leaves_out(self, name):
    """Asserts that one record is left out of the page; returns why."""
    _, (left_out,) = frame.load(self.runs, self.baselines)
    assert left_out.name == name and '\n' not in left_out.why
    page = render.markdown(site.load(self.place))[self.page]
    assert f'* `{name}`: ' in page
    (self.runs.parent / name).unlink()
    again = render.markdown(site.load(self.place))[self.page]
    start, end = page.index('**1 record is'), page.index('## Add a row')
    assert page[:start] + page[end:] == again  # nothing else is different
    return left_out.why


@pytest.fixture
def place(tmp_path):
  return Place(tmp_path)


def test_sound_records_make_a_page(place):
  place.put('other.json', copy.deepcopy(RUN))
  place.write()
  assert '| 1 | transformer | 65.0 | 58.2 to 71.3 \\* | +15.0 | 2 |' in (
      unlinked((place.place.details / 'text_mini.md').read_text('utf-8')))


def without(field):
  return lambda run: run.pop(field)


def change(*path, value):
  def apply(run):
    for name in path[:-1]:
      run = run[name]
    run[path[-1]] = value
  return apply


SPOILT = [
    *((without(field), f"'{field}' is missing") for field in RUN),
    (lambda run: run['test'].pop('f1'), "'test.f1' is missing"),
    (change('test', 'accuracy', value=1.2), "'test.accuracy' is 1.2: it"),
    (change('test', 'accuracy', value=65), 'less than or equal to 1'),
    (change('test', 'f1', value=-0.1), 'greater than or equal to 0'),
    (change('test', 'accuracy', value='0.65'), "'0.65': it should be a"),
    (change('test', 'accuracy', value=0.66), 'gives accuracy 0.650000'),
    (change('test', 'accuracy', value=math.nan), 'NaN is no|is nan'),
    (change('test', 'confusion', value=[[130, 70]]), 'is not square'),
    (change('test', value=scored.of(
        [[65, 35, 0], [35, 65, 0], [0, 0, 0]])), 'is not 2 x 2'),
    *((change('test', name, value=0.66), f'gives {name} 0.650000')
      for name in ('precision', 'recall', 'f1')),
    (change('test', 'confusion', value=[[65, 71], [65, -1]]),
     "'test.confusion.1.1' is -1"),
    (change('val', 'confusion', value=[[6, 4], [True, 6]]), 'confusion.1.0'),
    (change('test', 'correct', value=bits.pack([True] * 200)),
     'does not hold 130 correct'),
    (change('test', 'correct', value=bits.pack([True] * 130)),
     'does not hold 200 bits'),
    (change('test', 'correct', value='AB?='), "'test'"),
    (change('test', 'confusion', value=[[0, 0], [0, 0]]), 'no example'),
    (change('test', value=None), "'test' is null but the status is 'ok'"),
    (change('test', value=[]), "'test': it should be a JSON object"),
    (change('val', 'loss', value=True), "'val.loss' is True"),
    (change('val', 'loss', value=-0.1), "'val.loss' is -0.1"),
    (change('steps_per_s', value=math.inf), "Infinity is no|is inf"),
    (change('status', value='fine'), "'status' is 'fine': it should be 'ok',"),
    (change('task', value='chess'), "'chess': it should be one of listops, "),
    (change('model', value='other'), "'model' is 'other'"),
    (change('config', 'seed', value=3), "'seed' is 0"),
    (change('config', 'model', value='x'), "its 'model' is not an object"),
    (change('config', 'encoder', value=[1]), "its 'encoder' is not an object"),
    (change('config', 'train', value=None), "its 'train' is not an object"),
    (change('config', value=[]), "field 'config'"),
    (change('config', value={}), "its config has no 'task'"),
    *((lambda run, name=name: run['config'].pop(name),
       f"its config has no '{words}'") for name, words in (
           ('task', 'task'), ('model', 'model.name'), ('protocol', 'protocol'),
           ('seed', 'seed'), ('train', 'train.steps'))),
    (change('config', 'task', value='text'), "'task' is 'text_mini'"),
    (change('config', 'protocol', value='lra'), "'protocol' is '"),
    (change('config', 'train', 'steps', value=900), "'steps' is 800"),
    (change('steps', value=799), "'steps' is 799"),
    (change('best_step', value=801), "'best_step' is 801 but there are 800"),
    (change('floors', 'majority', value=50), "'floors.majority' is 50"),
    (change('num_params', value=0), "'num_params' is 0"),
    (change('mixer_params', value=1001), 'larger than'),
    (change('steps', value=1.5), "'steps' is 1.5"),
    (change('seed', value=True), "'seed' is True"),
    (change('seed', value=-1), "'seed' is -1"),
    (change('num_devices', value=0), "'num_devices' is 0"),
    (change('device', value=''), "'device' is '': it should"),
    (change('git_dirty', value='no'), "'git_dirty' is 'no'"),
    (change('objective', value=None), "'objective' is None"),
    (change('objective', value='masked'), "field 'val.confusion'"),
]


@pytest.mark.parametrize('spoil, reason', SPOILT)
def test_a_spoilt_record_is_named(tmp_path, spoil, reason):
  """A new result is held to the same as a record in a file."""
  bad, path = copy.deepcopy(RUN), tmp_path / 'bad.json'
  spoil(bad)
  path.write_text(json.dumps(bad))
  with pytest.raises(UserError, match=re.escape(str(path))) as read:
    result.read(path)
  with pytest.raises(UserError) as made:
    result.validate(bad)
  for sentence in (str(read.value), str(made.value)):
    assert any(r in sentence for r in reason.split('|'))
    assert '\n' not in sentence


def _many_classes():
  """Returns a record of a task whose results have no confusion matrix."""
  run = copy.deepcopy(RUN)
  run['task'] = run['config']['task'] = 'mad_memorization'
  run['objective'] = 'token_classification'
  for split in ('val', 'test'):
    count = sum(map(sum, run[split].pop('confusion')))
    run[split]['counted'] = count
  return run


def test_a_record_of_many_classes_has_a_count_in_place_of_a_confusion():
  run = _many_classes()
  made = result.validate(run)
  assert made.test.examples == 200 and made.test.accuracy == 0.65
  assert made.fields == run
  # Precision, recall and F1 cannot be checked.
  run['test']['f1'] = 0.1
  result.validate(run)


@pytest.mark.parametrize('spoil, reason', [
    (change('test', 'counted', value=0), 'no example'),
    (lambda run: run['test'].pop('counted'), 'no example'),
    (change('test', 'accuracy', value=0.651), "no number of the 200 examples"),
    (change('test', 'correct', value=bits.pack([True] * 200)),
     'does not hold 130 correct'),
    (change('test', 'confusion', value=RUN['test']['confusion']),
     "'test.confusion' is not 0 x 0")])
def test_a_spoilt_count_is_named(spoil, reason):
  run = _many_classes()
  spoil(run)
  with pytest.raises(UserError, match=reason):
    result.validate(run)


@pytest.mark.parametrize('data', [
    b'', b'{"task": "text_mini"', b'[]', b'null', b'\xff'])
def test_a_file_that_is_no_record_is_named(tmp_path, data):
  (tmp_path / 'bad.json').write_bytes(data)
  with pytest.raises(UserError, match='bad.json .*(damaged|JSON object)'):
    result.read(tmp_path / 'bad.json')


@pytest.mark.parametrize('status', ['diverged', 'oom', 'stopped'])
def test_an_unfinished_run_needs_no_scores(status):
  run = result.validate({
      **RUN, 'status': status, 'val': None, 'test': None, 'num_params': None,
      'mixer_params': None})
  assert run.finished == (status == 'diverged')


def test_committed_records_are_sound_and_written_as_they_are(tmp_path):
  found = sorted((paths.PACKAGED / 'runs').rglob('*.json'))
  assert len(found) >= 60
  for i, path in enumerate(found):
    run = result.read(path)
    assert paths.PACKAGED / 'runs' / run.record_path == path
    if i % 9 == 0:  # writing waits for the disk
      result.write(tmp_path / 'copy.json', run)
      assert (tmp_path / 'copy.json').read_bytes() == path.read_bytes()


def test_committed_records_name_commits_that_can_be_checked_out():
  """Each record's commits are in the history, or marked as not published."""
  git = lambda *words: subprocess.run(
      ('git', *words), cwd=paths.PACKAGED, capture_output=True, text=True
  ).stdout
  if git('rev-parse', '--is-shallow-repository') != 'false\n':
    pytest.skip('the history of this repository is not here')
  known = set(git('rev-list', 'HEAD').split())
  for path in (paths.PACKAGED / 'runs').rglob('*.json'):
    run = result.read(path)
    commits = {run.git_commit, *run.git_commits} - {None}
    assert commits <= known or run.git_published is False, path


def test_what_is_written_is_read_back_equal(tmp_path):
  run = result.validate({
      **RUN, 'later': [1], 'config': {**RUN['config'], 'betas': (0.9, 0.99)}})
  result.write(tmp_path / 'x.json', run)
  assert result.read(tmp_path / 'x.json') == run
  assert json.loads((tmp_path / 'x.json').read_text())['later'] == [1]
  assert run.config['betas'] == [0.9, 0.99]


MASKED = {**RUN, 'objective': 'masked', 'val': None,
          'test': {'loss': -1.5, 'perplexity': 12}}


def test_another_objective_has_a_loss_and_any_finite_numbers():
  scores = result.validate(MASKED).test
  assert scores.loss == -1.5 and scores.perplexity == 12


@pytest.mark.parametrize('scores, field', [
    ({'perplexity': 12}, 'test.loss'), ({'loss': math.nan}, 'test.loss'),
    ({'loss': 1, 'perplexity': 'high'}, 'test.perplexity'),
    ({'loss': 1, 'perplexity': math.inf}, 'test.perplexity'),
    ({'loss': 1, 'perplexity': True}, 'test.perplexity')])
def test_scores_of_another_objective_that_are_none(scores, field):
  with pytest.raises(UserError, match=f"field '{field}'"):
    result.validate({**MASKED, 'test': scores})


@pytest.mark.parametrize('step, says', [(200, 'the same'), (100, 'other')])
def test_of_two_records_of_a_run_one_is_shown(place, step, says):
  run = {**copy.deepcopy(RUN), 'seed': 1}
  place.put('twice.json', {**run, 'best_step': step})
  why = place.leaves_out('runs/twice.json')
  assert 'runs/good.json' in why and f'{says} content' in why


def test_a_run_that_missed_examples_is_left_out(place):
  bad = copy.deepcopy(RUN)
  bad['test'] = scored.of([[65, 35], [34, 65]])
  place.put('short.json', bad)
  assert 'counts 199 test examples but others 200 on' in place.leaves_out(
      'runs/short.json')


@pytest.mark.parametrize('spoil, reason', [
    (without('fingerprint'), "'fingerprint' is missing"),
    (lambda r: r['floors']['majority'].pop('how'), 'majority.how'),
    (change('floors', 'majority', 'accuracy', value=50.0), 'majority.accuracy'),
    (change('task', value='chess'), "'task' is 'chess'"),
    (change('task', value='text'), 'should be text.json'),
])
def test_a_spoilt_baselines_record_is_named_and_left_out(place, spoil, reason):
  bad = copy.deepcopy(FLOORS)
  spoil(bad)
  (place.baselines / 'text_mini.json').write_text(json.dumps(bad))
  assert reason in place.leaves_out('floors/text_mini.json')
