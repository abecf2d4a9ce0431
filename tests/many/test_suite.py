"""Tests suites: equal searches, choices by validation alone, their records."""

import copy
import json
import os
import re
import subprocess
import sys
import time

import pytest
from absl import flags
from absl.testing import flagsaver

from lra.board import frame, publish, rows, store, tables
from lra.cli import launch_suite
from lra.core import files, tasks
from lra.core.errors import UserError
from lra.many import plan, runner, suite, sweep
from lra.schema import result
from tests.helpers import commands, same_run, scored, tiny
from tests.helpers.paths import ROOT

RUN = json.loads((ROOT / 'tests/board/data/result.json').read_text())
RATES = 0.001, 0.01, 0.1, 1.0
LINE = tiny.words(**{
    'train.steps': 20, 'train.eval_every': 10, 'train.warmup_steps': 0})


def _entry(folder, rate, hits, loss, **others):
  """Writes the result of a run with `hits` of 100 right in validation."""
  run = copy.deepcopy(RUN) | others
  run['config']['train']['learning_rate'] = rate
  run['val'] = hits and scored.of([[hits, 100 - hits], [0, 0]], loss=loss)
  path = folder / str(rate)
  path.mkdir()
  (path / 'result.json').write_text(json.dumps(run))
  return sweep.Entry((f'--config.train.learning_rate={rate}', ''), path)


def _unit(folder, *runs):
  return suite.Unit('transformer', 'text_mini', ('train.learning_rate',), tuple(
      (_entry(folder, rate, *run),) for rate, run in zip(
          RATES, runs, strict=False)))


@pytest.mark.parametrize('runs, best', [
    ([(60, 0.5), (70, 0.5), (65, 0.1)], 1),
    ([(70, 0.5), (70, 0.4), (70, 0.6)], 1),  # ties: the lower loss,
    ([(60, 0.1), (70, 0.5), (70, 0.5)], 1),  # then the first
    ([(70, 0.5), (70, 0.5), (70, 0.4), (70, 0.4)], 2)])
def test_the_best_on_validation_is_chosen(tmp_path, runs, best):
  chosen = suite.choice(_unit(tmp_path, *runs))
  assert chosen.runs[0].folder.name == str(RATES[best])
  assert chosen.search.grid == {'train.learning_rate': list(RATES[:len(runs)])}
  assert chosen.search.scores == [
      ({'train.learning_rate': rate}, hits / 100)
      for rate, (hits, _) in zip(RATES, runs, strict=False)]


def test_test_scores_choose_nothing(tmp_path):
  """An earlier command may have tested a run of the search."""
  unit = suite.Unit('transformer', 'text_mini', ('train.learning_rate',), (
      (_entry(tmp_path, 0.1, 70, 0.5, test=None, status='validated'),),
      (_entry(tmp_path, 0.2, 60, 0.4,
              test=scored.of([[100, 0], [0, 100]])),)))
  assert suite.choice(unit).runs[0].folder.name == '0.1'


def test_a_diverged_run_is_tried_but_never_chosen(tmp_path):
  def made(name, **others):
    folder = tmp_path / name
    folder.mkdir()
    return suite.Unit('transformer', 'text_mini', ('train.learning_rate',), (
        (_entry(folder, 0.1, 60, 0.5, **others),),
        (_entry(folder, 0.2, 99, 0.1, status='diverged', test=None),)))

  chosen = suite.choice(made('one'))
  assert chosen.runs[0].folder.name == '0.1' and chosen.search.tried == 2
  assert [score for _, score in chosen.search.scores] == [0.6, None]
  none = suite.choice(made('all', status='diverged', test=None))
  assert none.runs == () and none.score is None


@pytest.mark.parametrize('status', ['oom', 'stopped'])
def test_an_incomplete_search_chooses_nothing(tmp_path, status):
  unit = suite.Unit('transformer', 'text_mini', ('train.learning_rate',), (
      (_entry(tmp_path, 0.1, 60, 0.5),),
      (_entry(tmp_path, 0.2, 50, 0.5, status=status, test=None),)))
  assert suite.choice(unit) is None
  (tmp_path / '0.2/result.json').unlink()
  assert suite.choice(unit) is None


def _search(**changes):
  return {'tried': 2, 'grid': {'train.learning_rate': [0.1, 0.2]},
          'chosen_by': 'validation accuracy', 'seed': 0,
          'scores': [[{'train.learning_rate': 0.1}, 0.6],
                     [{'train.learning_rate': 0.2}, None]], **changes}


def _record(rate=0.1, **changes):
  run = copy.deepcopy(RUN) | {'search': _search(**changes)}
  run['config']['train']['learning_rate'] = rate
  return run


def test_a_record_keeps_its_search(tmp_path):
  path = tmp_path / 'record.json'
  result.write(path, result.validate(_record()))
  assert result.read(path) == result.validate(_record())
  assert files.read_json(path)['search'] == _search()


@pytest.mark.parametrize('changes, word', [
    ({'rate': 0.2}, 'search'), ({'rate': 0.3}, 'search'),
    ({'tried': 3}, 'tried'), ({'scores': _search()['scores'][:1]}, 'tried'),
    ({'scores': [_search()['scores'][0]] * 2}, 'scores'),
    ({'grid': {'train.learning_rate': [0.1]}}, 'tried'),
    ({'chosen_by': 'test accuracy'}, 'chosen_by'),
    ({'scores': [[{'train.learning_rate': 0.1}, 0.6],
                 [{'train.learning_rate': 0.2}, 0.7]]}, 'search'),
    ({'scores': [[{'train.learning_rate': 0.1}, 6.0],
                 [{'train.learning_rate': 0.2}, 0.7]]}, 'scores')])
def test_a_search_that_did_not_choose_its_run_is_no_record(changes, word):
  with pytest.raises(UserError, match=word):
    result.validate(_record(**changes))


def test_runs_with_and_without_a_search_share_no_row_and_no_table(tmp_path):
  plain = copy.deepcopy(RUN) | {'seed': 1}
  plain['config'] |= {'seed': 1}
  plain['config']['train']['learning_rate'] = 0.1
  found = _record(0.1)
  runs = [store.with_changes(result.validate(run)) for run in (plain, found)]
  assert runs[0].record_path.name != runs[1].record_path.name
  for run in runs:
    (tmp_path / run.record_path).parent.mkdir(exist_ok=True)
    result.write(tmp_path / run.record_path, run)
  (board,), left_out = frame.load(tmp_path, tmp_path / 'none')
  assert not left_out and len(board.tables()) == 2
  assert list(board.rows.place) == [1, 1]
  column, = (c for c in tables.SCORES if c.name == 'search')
  assert {bool(item.row.search): column.text(item)
          for item in tables.lines(board.rows)} == {
      False: '', True: 'best of 2 by validation'}


def test_a_searched_field_is_no_change_of_its_own():
  """Whether the best rate is that of the protocol or not: one table."""
  tables = set()
  for rate in (0.1, 0.2):
    run = result.validate(_record(
        rate, scores=[[{'train.learning_rate': 0.1}, 0.6],
                      [{'train.learning_rate': 0.2}, 0.6]]))
    run = run.model_copy(update={'changes': (
        {} if rate == 0.1 else {'train.learning_rate': 0.1})})
    tables.add(rows.Row([run]).table)
  assert tables == {rows.TableKey('simpletron', searched=True)}


@pytest.fixture
def here(tmp_path, monkeypatch):
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  monkeypatch.chdir(tmp_path)
  return tmp_path


def _write(folder, *lines, models='simpletron,linear_transformer'):
  (folder / 'my.txt').write_text(
      '\n'.join([f'models={models}', *lines]) + '\n')


def test_all_models_have_one_grid(here):
  _write(here, 'parity seeds=3,0 train.learning_rate=[0.1,0.2] '
         'train.weight_decay=[0,1]', 'listops_mini train.steps=[7,8]')
  units = suite.read('my.txt')
  assert [(u.model, u.task) for u in units] == [
      (model, task) for task in ('parity', 'listops_mini')
      for model in ('simpletron', 'linear_transformer')]
  grids = [[[e.flags[1:] for e in runs] for runs in u.settings] for u in units]
  assert grids[0] == grids[1] and grids[2] == grids[3]
  assert [len(grid) for grid in grids] == [4, 4, 2, 2]
  assert [e.seed for e in units[0].search] == ['3'] * 4
  others = suite.read('my.txt', ['fnet'])
  assert [u.model for u in others] == ['fnet'] * 2


@pytest.mark.parametrize('line, word', [
    ('parity seeds=0-2', 'no values'),
    ('parity train.learning_rate=[0.1,0.1]', 'line 2: the run'),
    ('nowhere train.steps=[7,8]', 'nowhere'),
    ('parity model.num_heads=[1,2]', 'fnet'),
    ('parity train.include_val=True train.steps=[7,8]', 'validation'),
    ('', 'no task')])
def test_a_bad_suite_is_named(here, line, word):
  _write(here, line, models='simpletron,fnet')
  with pytest.raises(UserError, match=f'my.txt.*{word}'):
    suite.read('my.txt')


@pytest.mark.parametrize('arguments, words', [
    (['--suite=nobody'], ['nobody', 'state']),
    (['--suite=none.txt'], ['none.txt']),
    (['--suite=state', '--models=nobody'], ['nobody']),
    (['--suite=state', '--models=fnet,fnet'], ['fnet']),
    (['--models=fnet'], ['--suite']),
    (['--suite=state', '--seeds=1'], ['--seeds'])])
def test_bad_flags_are_named(here, arguments, words):
  commands.assert_one_sentence(
      commands.run('run_lra', *arguments, cwd=here), *words)


@pytest.mark.parametrize('path', sorted((ROOT / 'configs/suites').iterdir()))
def test_suites_of_the_repository(path, monkeypatch):
  """A task that is commented out does not exist yet; uncomment it once it does.
  """
  monkeypatch.chdir(ROOT)
  lines = path.read_text().splitlines()
  waiting = [re.match('#([a-z0-9_]+) ', line) for line in lines]
  for found in filter(None, waiting):
    assert found[1] not in tasks.TASKS, f'uncomment {found[1]} in {path.name}'
  if any(waiting) and not any(re.match('[a-z0-9_]+[, ]', x) for x in lines):
    return  # all of its tasks are to come
  units = suite.read(path.stem, ['transformer'])
  assert all(len(u.settings) > 2 and len(u.settings[0]) > 2 for u in units)


def _run_suite(*more):
  with flagsaver.flagsaver():
    flags.FLAGS(['lra', '--suite=my.txt', '--compile_cache=', *more])
    return launch_suite.run()


class Killed(BaseException):
  """Ends a suite; no code of the program catches it."""


class Runs:
  """Stands for the processes of a suite: writes results without training.

  Attributes:
    calls: the flags of each process.
    left: number of results to write before a kill.
  """
  hits = {0.1: 60, 0.2: 80, 0.3: 70}  # of 100 in validation, by rate

  def __init__(self, units):
    self.entries = [entry for unit in units for runs in unit.settings
                    for entry in runs]
    self.calls, self.left = [], -1

  def call(self, *arguments, **_):
    self.calls.append(arguments)
    seeds = next(a for a in arguments if a.startswith('--seeds='))[8:]
    for entry in self.entries:
      rate = re.search('learning_rate=([0-9.]+)', entry.title)[1]
      if (entry.flags[0] in arguments and entry.seed in seeds.split(',')
          and any(a.endswith(f'learning_rate={rate}') for a in arguments)):
        if not self.left:
          raise Killed
        self.left -= 1
        self._write(entry, float(rate), '--notest' not in arguments)
    return 0

  def _write(self, entry, rate, tested):
    run = copy.deepcopy(RUN)
    run |= {'model': entry.folder.parent.name, 'seed': int(entry.seed)}
    run['config'] |= {'model': {'name': run['model']}, 'seed': run['seed']}
    run['config']['train']['learning_rate'] = rate
    hits = self.hits[rate]
    run['val'] = scored.of([[hits, 100 - hits], [0, 0]])
    if not tested:
      run |= {'status': 'validated', 'test': None}
    entry.folder.mkdir(parents=True, exist_ok=True)
    result.write(entry.folder / 'result.json', result.validate(run))


@pytest.fixture
def runs(here, monkeypatch):
  _write(here, 'text_mini seeds=4,5 train.learning_rate=[0.1,0.2,0.3]',
         models='transformer,simpletron')
  made = Runs(suite.read('my.txt'))
  monkeypatch.setattr(runner, '_call', made.call)
  return made


def _tested(folder):
  """Returns the (learning rate, seed) of each run that has a test score."""
  results = [result.read(path) for path in folder.glob('runs/*/*/*/*.json')]
  return sorted((run.config['train']['learning_rate'], run.seed)
                for run in results if run.test)


def test_only_the_chosen_setting_is_tested_and_recorded(
    here, runs, monkeypatch, capsys):
  published = []
  monkeypatch.setattr(publish, 'check', lambda *_: None)
  monkeypatch.setattr(publish, 'done', lambda *_, **__: False)
  monkeypatch.setattr(
      publish, 'publish', lambda run, *_, **__: published.append(run))
  assert _run_suite('--record') == 0
  assert _tested(here) == sorted([(0.2, 4), (0.2, 5)] * 2)
  assert capsys.readouterr().out.count(' 65.0 ') == 2  # one for each model
  assert [(run.model, run.seed) for run in published] == [
      (model, seed) for model in ('transformer', 'simpletron')
      for seed in (4, 5)]
  for run in published:
    search = result.validate(run.fields).search
    assert (search.tried, search.seed) == (3, 4)
    assert [score for _, score in search.scores] == [0.6, 0.8, 0.7]
  # Each process trains what its model needs, and none decides to publish.
  assert ['--notest' in call for call in runs.calls] == [True, False] * 2
  assert all('--norecord' in call for call in runs.calls)
  assert _run_suite() == 0 and len(runs.calls) == 4


@pytest.mark.parametrize('kills', [1, 3, 4, 8])
def test_a_killed_suite_resumes_to_the_same_choice(here, runs, kills):
  """It is killed in a search, before its test, after it, and in the last test.
  """
  runs.left = kills
  with pytest.raises(Killed):
    _run_suite()
  chosen = {rate for rate, _ in _tested(here)}
  assert chosen <= {0.2}
  runs.left = -1
  assert _run_suite() == 0
  assert _tested(here) == sorted([(0.2, 4), (0.2, 5)] * 2)


def test_a_failed_run_of_a_search_leaves_its_model_without_a_choice(
    here, runs, monkeypatch):
  """The other model is searched and tested."""
  monkeypatch.setattr(runner, '_call', lambda *flags, **how: (
      2 if 'transformer' in flags[0] else runs.call(*flags, **how)))
  with pytest.raises(UserError, match='3 of 8 runs have failed'):
    _run_suite()
  assert _tested(here) == [(0.2, 4), (0.2, 5)]


def test_the_plan_counts_the_search_and_the_seeds_of_one_setting(here):
  _write(here, f'listops_mini {LINE} seeds=0-2 train.learning_rate=[0.3,0.01]')
  units = suite.read('my.txt')
  cost = plan.Cost(step=1.0, validation=10.0, test=100.0, compiling=0.0)
  records = []

  def estimate(entry, work=plan.WORK):
    records.append((entry, work))
    steps = 20 if 'train' in work else 0
    return plan.Estimate(
        entry.title, 'new', steps, 20,
        steps * cost.step + (20 if steps else 0) + (
            cost.test if 'test' in work else 0), 0.0, 'a record')

  found = launch_suite.planned(units[0], estimate)
  assert found.steps == found.left == 4 * 20
  assert found.seconds == 4 * (20 + 20) + 3 * 100


def _start(folder, data_dir):
  folder.mkdir(exist_ok=True)
  if not (folder / 'configs').exists():
    (folder / 'configs').symlink_to(ROOT / 'configs')
  _write(folder, f'listops_mini {LINE} data_dir={data_dir} seeds=0-1 '
         'train.learning_rate=[0.3,0.01,0.03]')
  return subprocess.Popen(
      [sys.executable, str(ROOT / 'run_lra.py'), '--suite=my.txt',
       '--record', '--results_dir=results',
       f'--compile_cache={folder.parent / "xla"}'],
      cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)})


@pytest.mark.full
def test_kill_9_and_restart_give_the_same_choice(mini_data, tmp_path):
  """One kill comes in the first search, one in the second model's."""
  whole, broken = tmp_path / 'whole', tmp_path / 'broken'
  process = _start(whole, mini_data)
  out, errors = process.communicate()
  assert process.returncode == 0, errors
  assert out.count('best of 3 by validation') == 2
  for logs in (2, 6):
    process = _start(broken, mini_data)
    while len(list(broken.glob('runs/*/*/*/metrics.jsonl'))) < logs:
      assert process.poll() is None
      time.sleep(0.01)
    process.kill()
    process.communicate()
  process = _start(broken, mini_data)
  out, errors = process.communicate()
  assert process.returncode == 0, errors
  assert same_run.records(broken) == same_run.records(whole)
  assert len(same_run.records(whole)) == 4
