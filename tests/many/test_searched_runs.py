"""Tests files with a search: its runs, choice, tests, records and kills."""

import copy
import json
import re

import pytest

from lra.board import frame, publish, rows, store, tables
from lra.cli import arguments, main
from lra.core import files
from lra.core.errors import UserError
from lra.many import processes, runs
from lra.run import loader
from lra.schema import result
from tests.helpers import same_run, scored, tiny
from tests.helpers.paths import ROOT

RUN = json.loads((ROOT / 'tests/board/data/result.json').read_text())


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


class Killed(BaseException):
  """Ends the command; no code of the program catches it."""


class Runs:
  """Stands for the processes of a search: writes results without training.

  Attributes:
    calls: (titles of the runs, flags) of each process.
    left: number of results to write before a kill.
  """
  hits = {0.1: 60, 0.2: 80, 0.3: 70}  # of 100 in validation, by rate

  def __init__(self):
    self.calls, self.left = [], -1

  def call(self, own, some, more):
    args = arguments.parsed('runs', ['-', *own.flags(more)])
    assert args.record is False and args.notest == ('--notest' in more)
    self.calls.append(([run.title for run in some], more))
    for run in some:
      if not self.left:
        raise Killed
      self.left -= 1
      rate = float(re.search('learning_rate=([0-9.]+)', run.title)[1])
      self._write(run, rate, '--notest' not in more)
    return 0

  def _write(self, run, rate, tested):
    made = copy.deepcopy(RUN)
    made |= {'model': run.folder.parent.name, 'seed': int(run.seed)}
    made['config'] |= {'model': {'name': made['model']}, 'seed': made['seed']}
    made['config']['train']['learning_rate'] = rate
    if shorter := re.search('train.steps=([0-9]+)', run.title):
      made['steps'] = made['config']['train']['steps'] = int(shorter[1])
      made['best_step'] = min(made['best_step'], made['steps'])
    hits = self.hits[rate]
    made['val'] = scored.of([[hits, 100 - hits], [0, 0]])
    if not tested:
      made |= {'status': 'validated', 'test': None}
    run.folder.mkdir(parents=True, exist_ok=True)
    result.write(run.folder / 'result.json', result.validate(made))


@pytest.fixture
def called(here, monkeypatch):
  (here / 'a.toml').write_text('''[[runs]]
      models = ["transformer", "simpletron"]
      tasks = ["text_mini"]
      seeds = "4,5"
      search.train.learning_rate = [0.1, 0.2, 0.3]''')
  made = Runs()
  monkeypatch.setattr(
      processes.Processes, '_call', lambda *asked: made.call(*asked))
  return made


def _train(*more):
  return main.main(['runs', 'a.toml', '--compile_cache=',
                    '--results_dir=results', *more])


def _tested(folder):
  """Returns the (learning rate, seed) of each run that has a test score."""
  found = [result.read(path) for path in folder.glob('runs/*/*/*/*.json')]
  return sorted((run.config['train']['learning_rate'], run.seed)
                for run in found if run.test)


@pytest.fixture
def published(monkeypatch):
  """Returns a list of the runs that are published, without a page."""
  runs = []
  monkeypatch.setattr(publish, 'check', lambda *_: None)
  monkeypatch.setattr(publish, 'done', lambda *_, **__: False)
  monkeypatch.setattr(
      publish, 'publish_all', lambda new, *_, **__: runs.extend(new))
  return runs


def test_only_the_chosen_setting_is_tested_and_recorded(
    tmp_path, called, published, capsys):
  assert _train('--record') == 0
  assert _tested(tmp_path) == sorted([(0.2, 4), (0.2, 5)] * 2)
  out = capsys.readouterr().out
  assert out.count('best of 3 settings by validation: train.learning_rate=0.2 '
                   '(80.00%); 2 seeds: test accuracy 65.0%') == 2
  assert '\n8 of 8 runs are finished.\n' in out
  assert [(run.model, run.seed) for run in published] == [
      (model, seed) for model in ('transformer', 'simpletron')
      for seed in (4, 5)]
  for run in published:
    search = result.validate(run.fields).search
    assert (search.tried, search.seed) == (3, 4)
    assert [score for _, score in search.scores] == [0.6, 0.8, 0.7]
  # Each process trains what its model needs, and none decides to publish.
  assert [(len(titles), more) for titles, more in called.calls] == [
      (3, ('--notest', '--norecord')),
      (2, ('--norecord', '--record_later'))] * 2
  assert _train() == 0 and len(called.calls) == 4
  assert 'not on the leaderboard: --record' in capsys.readouterr().out


def test_a_shorter_search_trains_the_chosen_setting_anew(
    tmp_path, called, published):
  path = tmp_path / 'a.toml'
  path.write_text(path.read_text() + '\nsearch_share = 4')
  assert _train('--record') == 0
  whole = loader.made_by(['--config=configs/transformer.py:text_mini']).train
  (shorter, _), (chosen, _) = called.calls[:2]
  assert [title.split()[-4:] for title in shorter] == [
      [f'train.steps={whole.steps // 4}',
       f'train.warmup_steps={whole.warmup_steps // 4}',
       f'train.eval_every={whole.eval_every}', 'seed=0']] * 3
  assert [title.split()[1:] for title in chosen] == [
      ['train.learning_rate=0.2', f'seed={seed}'] for seed in (4, 5)]
  assert [(run.seed, run.search.seed, run.search.steps) for run in published
          ] == [(seed, 0, whole.steps // 4) for seed in (4, 5)] * 2
  assert published[0].search.seconds == pytest.approx(
      3 * result.validate(RUN).seconds)
  assert len(runs.read('a.toml')) == 18
  assert _train() == 0 and len(called.calls) == 4


@pytest.mark.parametrize('kills', [1, 3, 4, 8])
def test_a_killed_search_resumes_to_the_same_choice(tmp_path, called, kills):
  """It is killed in a search, before its test, after it, and in the last test.
  """
  called.left = kills
  with pytest.raises(Killed):
    _train()
  assert {rate for rate, _ in _tested(tmp_path)} <= {0.2}
  called.left = -1
  assert _train() == 0
  assert _tested(tmp_path) == sorted([(0.2, 4), (0.2, 5)] * 2)


def test_a_failed_run_of_a_search_leaves_its_model_without_a_choice(
    tmp_path, called, monkeypatch):
  """The other model is searched and tested."""
  monkeypatch.setattr(processes.Processes, '_call', lambda own, some, more: (
      2 if 'transformer' in some[0].title else called.call(own, some, more)))
  with pytest.raises(UserError, match='3 of 8 runs have failed'):
    _train()
  assert _tested(tmp_path) == [(0.2, 4), (0.2, 5)]


def test_the_status_of_a_search_knows_its_choice(called, capsys):
  called.left = 2
  with pytest.raises(Killed):
    _train()
  assert _train('--status') == 0
  out = capsys.readouterr().out
  assert ('best so far of 2 of 3 settings by validation: '
          'train.learning_rate=0.2') in out
  assert out.splitlines()[-2] == '2 of 8 runs are finished.'
  assert len(runs.read('a.toml')) == 12  # of which 8 will be trained


@pytest.mark.full
def test_kill_9_and_restart_give_the_same_choice(mini_data, broken_and_whole):
  """One kill comes in the first search, one in the second model's."""
  changes = tiny.table(**{
      'train.steps': 20, 'train.eval_every': 10, 'train.warmup_steps': 0,
      'data_dir': str(mini_data)})
  broken, whole, ends = broken_and_whole(['runs', 'a.toml'], [2, 6], f'''
      [[runs]]
      models = ["simpletron", "linear_transformer"]
      tasks = ["listops_mini"]
      seeds = "0-1"
      set = {changes}
      search.train.learning_rate = [0.3, 0.01, 0.03]''')
  assert [code for code, *_ in ends] == [0, 0], ends
  assert ends[1][1].count('best of 3 settings by validation') == 2
  assert same_run.records(broken) == same_run.records(whole)
  assert len(same_run.records(whole)) == 4
