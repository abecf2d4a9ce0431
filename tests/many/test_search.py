"""Tests searches: their draws, pruning, choice, records, kills and restarts."""

import copy
import importlib.util
import json
import math
import statistics
import sys

import pytest
from absl.testing import flagsaver

from lra.board import publish
from lra.cli import train as train_word
from lra.core.errors import UserError
from lra.many import search
from lra.run import program, train
from lra.schema import result
from tests.helpers import same_run, scored, tiny
from tests.helpers.paths import ROOT

RUN = json.loads((ROOT / 'tests/board/data/result.json').read_text())
SPACE = 'train.learning_rate=log(1e-4,1) train.weight_decay=[0,0.1]'


def test_each_kind_of_range_is_read():
  found = search.space(
      'a=log(1e-4,1) b=uniform(0,0.5) c=int(1,8) d=[0,none] e=[(1,2),"x"]')
  assert found == {
      'a': ('log', 1e-4, 1), 'b': ('uniform', 0, 0.5), 'c': ('int', 1, 8),
      'd': ('values', '0', 'none'), 'e': ('values', '(1,2)', 'x')}
  assert [search.shown(spec) for spec in found.values()] == [
      ['log(0.0001,1)'], ['uniform(0,0.5)'], ['int(1,8)'], [0, 'none'],
      [(1, 2), 'x']]


@pytest.mark.parametrize('text', [
    'a=log(0,1)', 'a=log(1,0.1)', 'a=uniform(0,inf)', 'a=int(1,2.5)', 'a=3',
    'a', 'a=log(1)', 'a=[]', 'a=log(x,y)', 'a=int(1,2) a=int(1,2)', ' ',
    'a=uniform(-1e308,1e308)', 'a=uniform(0,3.1e38)', f'a=int(1,{10**400})',
    'a=int(0,2147483648)', 'data_dir=[a,b]', 'mesh.data=[1,2]',
    'train.log_every=int(1,9)'])
def test_a_bad_range_is_named(text):
  with pytest.raises(UserError, match=f'{text.split("=")[0].strip()}.*: '):
    search.space(text)


def _drawn(accuracies, fields=SPACE, seed=0):
  """Returns the changes of each trial, told these accuracies."""
  made = []
  for trial, accuracy in zip(
      search.trials(search.space(fields), seed, len(accuracies)), accuracies,
      strict=True):
    made.append(trial.changes)
    trial.tell(accuracy)
  return made


def test_draws_depend_on_the_seed_and_the_accuracies_alone():
  accuracies = [0.1, 0.5, 0.4, None, 0.3, 0.2, 0.6, 0.1, 0.2, 0.7, 0.3, 0.2]
  first = _drawn(accuracies)
  assert first == _drawn(accuracies) and len(set(first)) == len(first)
  assert _drawn(accuracies[:5]) == first[:5]
  assert set(_drawn(accuracies, seed=1)).isdisjoint(first)
  # The settings after the random ones depend on what was told.
  other = _drawn([0.7 - (x or 0) for x in accuracies])
  assert other[:10] == first[:10] and other[10:] != first[10:]


def test_draws_are_near_the_best_ones():
  """The best is at 10^-0.5; random settings are 1.5 powers of ten from it."""
  errors = []
  for trial in search.trials(search.space('a=log(1e-4,1)'), 0, 40):
    rate = float(trial.changes[0].removeprefix('a='))
    errors.append(abs(math.log10(rate) + 0.5))
    trial.tell(1 - errors[-1] / 4)
  assert all(error <= 3.51 for error in errors)
  assert statistics.median(errors[20:]) < 0.5 * statistics.median(errors[:10])


def test_what_is_below_the_median_is_pruned_in_a_run_and_in_a_log(tmp_path):
  """It is after five whole trials, by the best accuracy so far."""
  trials = search.trials(search.space(SPACE), 0, 9)
  for value in (0.2, 0.3, 0.4, 0.5, 0.6):
    trial = next(trials)
    assert not trial.watch(1, value) and not trial.watch(2, value - 0.1)
    trial.tell(value)
  trial = next(trials)
  assert not trial.watch(1, 0.41) and not trial.watch(2, 0.0)
  trial.tell(0.41)
  assert next(trials).watch(1, 0.39) == search.PRUNED
  log = tmp_path / 'metrics.jsonl'
  log.write_text('\n'.join(map(json.dumps, (
      {'split': 'train', 'step': 1, 'accuracy': 0.0},
      {'split': 'val', 'step': 1, 'accuracy': 0.39},
      {'split': 'val', 'step': 2, 'accuracy': 0.0}))))
  trial = next(trials)
  assert trial.replay(tmp_path, 3, False) == search.PRUNED
  assert not trial.replay(tmp_path, 3, True)  # it ended all the same
  log.write_text(log.read_text().replace('0.39', '0.5'))
  assert not next(trials).replay(tmp_path, 3, False)


def test_without_optuna_there_is_a_sentence(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(UserError, match='optuna needs Optuna.*pip install'):
    next(search.trials(search.space(SPACE), 0, 1))


class Killed(BaseException):
  """Ends a search; no code of the program catches it."""


class Runs:
  """Stands for `train`: makes the model and writes results, without training.

  Attributes:
    calls: (learning rate, seed, whether tested) of each run.
    left: number of validations before a kill.
    too_large: values of encoder.pooling of runs that end out of memory.
  """

  def __init__(self):
    self.calls, self.left, self.too_large = [], -1, ()

  def train(self, one, minutes=None, *, tested, watch=None, **_):
    config = one.config.to_dict()
    rate = config['train']['learning_rate']
    self.calls.append((rate, config['seed'], tested))
    _ = program.make(one).state_shape
    accuracy = round(0.9 - abs(math.log10(rate) + 2) / 4, 2)
    run = copy.deepcopy(RUN) | {
        'task': 'parity', 'model': config['model']['name'],
        'seed': config['seed'],
        'protocol': config['protocol'], 'config': config, 'steps': 30,
        'best_step': 30, 'status': 'ok' if tested else 'validated',
        'objective': config['objective']}
    one.folder.mkdir(parents=True, exist_ok=True)
    (one.folder / 'config.json').write_text(json.dumps(config))
    (one.folder / 'curves.png').touch()  # drawing takes seconds
    log = one.folder / 'metrics.jsonl'
    points = []
    for step, value in ((10, accuracy / 2), (20, accuracy)):
      if not self.left:
        raise Killed
      self.left -= 1
      points.append({'split': 'val', 'step': step, 'accuracy': value})
      log.write_text('\n'.join(map(json.dumps, points)))
      if watch and watch(step, value):
        run |= {'status': 'stopped', 'steps': step, 'best_step': step}
        break
    hits = round(100 * accuracy)
    run['val'] = scored.of([[hits, 100 - hits], [0, 0]])
    if rate > 0.1 and run['status'] != 'stopped':
      run['status'] = 'diverged'
    if config['encoder']['pooling'] in self.too_large:
      run['status'] = 'oom'
    if run['status'] != 'ok':
      run['test'] = None
    made = result.validate(run)
    result.write(one.folder / 'result.json', made)
    return made


@pytest.fixture
def runs(here, monkeypatch):
  made = Runs()
  monkeypatch.setattr(train, 'train', made.train)
  monkeypatch.setattr(publish, 'check', lambda *_: None)
  monkeypatch.setattr(
      publish, 'publish', lambda run, *_, **__: made.published.append(run))
  made.published = []
  return made


def _main(argv):
  with flagsaver.flagsaver(), pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, 'argv', ['lra', *argv])
    return train_word.main(argv)


def _run(*more, model='simpletron'):
  return _main([
      f'--config=configs/{model}.py:parity', '--config.train.steps=30',
      '--config.train.eval_every=10', '--config.train.warmup_steps=0',
      '--search=optuna', '--trials=14', '--compile_cache=',
      '--results_dir=results',
      '--space=train.learning_rate=log(1e-4,1)', *more])


def test_only_the_chosen_setting_is_tested_and_recorded(runs, capsys):
  assert _run('--record', '--seeds=3,4') == 0
  searched = [rate for rate, _, tested in runs.calls if not tested]
  assert len(searched) == 14 and {
      seed for _, seed, tested in runs.calls if not tested} == {3}
  best = min(searched, key=lambda rate: abs(math.log10(rate) + 2))
  assert [call for call in runs.calls if call[2]] == [
      (best, 3, True), (best, 4, True)]
  assert [run.seed for run in runs.published] == [3, 4]
  out = capsys.readouterr().out
  for run in runs.published:
    found = result.validate(run.fields).search
    assert (found.tried, found.seed, found.sampler) == (14, 3, 'tpe')
    assert found.grid == {'train.learning_rate': ['log(0.0001,1)']}
    assert [setting['train.learning_rate'] for setting, _ in found.scores] == (
        searched)
    assert 0 < found.pruned == out.count(search.PRUNED)
    diverged = sum(rate > 0.1 for rate in searched)
    assert found.pruned <= sum(score is None for _, score in found.scores) <= (
        found.pruned + diverged)
  # Nothing is trained or drawn again.
  before = len(runs.calls)
  assert _run('--norecord', '--seeds=3,4') == 0
  assert len(runs.calls) == before


@pytest.mark.parametrize('model, space', [
    ('transformer', 'model.num_heads=int(1,8)'),  # a rule of the config
    ('transformer_rotary', 'model.num_heads=[2,32]'),  # a layer of the model
    ('transformer', 'encoder.pooling=[mean,first]')])
def test_a_setting_that_cannot_be_does_not_end_a_search(
    runs, capsys, model, space):
  flags = ('--trials=6', '--norecord', '--config.encoder.width=32',
           f'--space={space}')
  runs.too_large = ('first',)
  assert _run(*flags, model=model) == 0
  first = _said(capsys)
  failed = [line for line in first if 'config.' in line or 'memory' in line]
  assert 0 < len(failed) < 6 and len(first) == 7
  assert _run(*flags, model=model) == 0 and _said(capsys) == first


def test_a_search_of_settings_that_all_cannot_be_is_refused(runs):
  with pytest.raises(UserError, match='num_heads=[35] heads'):
    _run('--space=model.num_heads=[3,5]', model='transformer')


def test_without_a_test_a_search_only_chooses(runs):
  assert _run('--notest', '--norecord') == 0
  assert len(runs.calls) == 14 and not any(tested for *_, tested in runs.calls)
  assert _run('--norecord') == 0
  assert [tested for *_, tested in runs.calls[14:]] == [True]
  assert not runs.published


def _said(capsys):
  return [line for line in capsys.readouterr().out.splitlines()
          if 'trials]' in line or line.startswith('best of')]


def test_a_killed_search_resumes_to_the_same_choice(
    runs, tmp_path, monkeypatch, capsys):
  runs.left = 13
  with pytest.raises(Killed):
    _run('--norecord')
  capsys.readouterr()
  begun, runs.left = len(runs.calls), -1
  assert _run('--norecord') == 0
  broken = _said(capsys)
  # Only the run that was killed is called twice.
  assert runs.calls[begun - 1] == runs.calls[begun]
  assert len(runs.calls) == 1 + 14 + 1
  (tmp_path / 'other').mkdir()
  (tmp_path / 'other/configs').symlink_to(ROOT / 'configs')
  monkeypatch.chdir(tmp_path / 'other')
  assert _run('--norecord') == 0
  assert broken == _said(capsys)


def _searched(**changes):
  run = copy.deepcopy(RUN)
  run['config']['train']['learning_rate'] = 0.1
  return run | {'search': {
      'tried': 2, 'grid': {'train.learning_rate': ['log(0.01,1)']},
      'chosen_by': 'validation accuracy', 'seed': 0, 'sampler': 'tpe',
      'pruned': 1, 'scores': [
          [{'train.learning_rate': 0.1}, 0.6],
          [{'train.learning_rate': 0.2}, None]], **changes}}


@pytest.mark.parametrize('changes', [
    {'tried': 3}, {'pruned': 2}, {'sampler': 'random'}, {'sampler': 'grid'},
    {'scores': [[{'train.steps': 1}, 0.6], [{'train.steps': 2}, 0.5]]}])
def test_a_record_keeps_how_many_settings_were_drawn(changes):
  found = result.validate(_searched()).search
  assert found.text == 'best of 2 (TPE, 1 pruned) by validation'
  with pytest.raises(UserError):
    result.validate(_searched(**changes))


@pytest.mark.parametrize('arguments, word', [
    (['--trials=3'], '--trials.*--search'),
    (['--space=train.steps=[1,2]'], '--space.*--search'),
    (['--search=optuna'], '--space'),
    (['--search=optuna', '--space=x=[1,2]', '--grid=train.steps=[1,2]'],
     '--grid'),
    (['--search=optuna', '--space=nothing.here=[1,2]'], 'nothing'),
    (['--search=optuna', '--space=train.steps=[1,2]', '--config.seed=1',
      '--seeds=1'], '--seeds')])
def test_bad_flags_are_named(arguments, word):
  with pytest.raises(UserError, match=word):
    _main([f'--config={ROOT}/configs/simpletron.py:parity', '--compile_cache=',
           *arguments])


@pytest.mark.full
def test_kill_9_and_restart_give_the_same_choice(mini_data, broken_and_whole):
  """One kill comes in the second trial, one in the sixth."""
  broken, whole, ends = broken_and_whole(
      ['--config=configs/simpletron.py:listops_mini', *tiny.flags(**{
          'data_dir': mini_data, 'train.steps': 30, 'train.eval_every': 10,
          'train.warmup_steps': 0}), '--search=optuna', '--trials=7',
       f'--space={SPACE}', '--seeds=0-1'], [2, 6])
  assert [code for code, *_ in ends] == [0, 0], ends
  again, out = ([x for x in out.splitlines() if 'trials]' in x]
                for _, out, _ in ends)
  assert again == out != []
  assert same_run.records(broken) == same_run.records(whole)
  assert len(same_run.records(whole)) == 2
