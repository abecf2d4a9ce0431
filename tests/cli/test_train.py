"""Tests the runs of --seeds and --grid, where records go, and warnings."""

import json
import pathlib
import types

import pytest
from ml_collections import ConfigDict

from lra.board import publish
from lra.cli import board
from lra.cli import command as command_lib
from lra.core import paths
from lra.many import execute
from lra.run import provenance
from lra.schema import result
from tests.helpers import commands, scored, tiny
from tests.helpers.paths import ROOT

MINI = f'--config={ROOT}/configs/simpletron.py:listops_mini'
RUN = pathlib.Path(__file__).parents[1] / 'board' / 'data' / 'result.json'


def test_another_folder_of_records_has_a_page_of_its_own(tmp_path):
  own = tmp_path / 'own'
  place = board.place(own)
  assert place.page == own / 'leaderboard.md'
  publish.publish(result.validate(json.loads(RUN.read_text())), place)
  assert '](../figures/' in (own / 'leaderboard/text_mini.md').read_text()
  assert list((own / 'figures').iterdir())
  there = pathlib.Path('there.md')
  assert board.place(own, there).page == there
  assert board.place(paths.results()).page == paths.page()


def _train_grid(monkeypatch, status, **options):
  """Trains three settings, whose results are made by hand."""
  runs, results = [], []
  tested = options.get('test', True)
  for rate, hits, ended in (
      (0.1, 60, 'validated'), (0.2, 80, status), (0.3, 70, 'validated')):
    if tested and ended == 'validated':
      ended = 'ok'
    made = json.loads(RUN.read_text()) | {
        'status': ended, 'val': scored.of([[hits, 100 - hits], [0, 0]]),
        'seed': 0}
    made['config'] |= {'seed': 0}
    made['config']['train']['learning_rate'] = rate
    made['test'] = None if ended == 'validated' else scored.of(
        [[int(100 * rate), 100 - int(100 * rate)], [0, 0]])
    results.append(result.validate(made))
    runs.append(types.SimpleNamespace(
        folder=pathlib.Path(str(rate)), changes={}, task=results[-1].task,
        config=ConfigDict(made['config'])))
  monkeypatch.setattr(execute, 'train_sources', lambda *_: 0)
  monkeypatch.setattr(
      execute, '_trained', lambda *_: zip(runs, results, strict=True))
  execute.train(runs, execute.Options(None, record=False, **options))


@pytest.mark.parametrize('status, best', [('ok', 0.2), ('diverged', 0.3)])
def test_a_grid_that_is_not_tested_ends_with_the_best_by_validation(
    monkeypatch, capsys, status, best):
  """A test score that an earlier command made is not shown."""
  _train_grid(monkeypatch, status, test=False)
  out = capsys.readouterr().out
  assert f' train.learning_rate={best} ' in out.splitlines()[-1]
  assert '20.00%' not in out and 'Best of 3' in out


def test_of_a_grid_only_the_best_by_validation_shows_its_test(
    monkeypatch, capsys):
  """The third setting has the highest test score, 30%."""
  _train_grid(monkeypatch, 'ok')
  out = capsys.readouterr().out
  assert 'train.learning_rate=0.2 (80.00%); test accuracy 20.00%' in (
      out.splitlines()[-1])
  assert '30.00%' not in out and '10.00%' not in out
  assert out.count('20.00%') == 1
  _train_grid(monkeypatch, 'ok', show_test=False)
  assert '20.00%' not in capsys.readouterr().out


@pytest.mark.full
def test_each_run_of_a_grid_says_what_it_changes(mini_data, tmp_path):
  """The learning rate 0.05 is the protocol's, so it is no change."""
  done = commands.run(
      'run_lra', f'--config={ROOT}/configs/simpletron.py:listops_mini',
      *tiny.flags(**{'data_dir': mini_data, 'train.steps': 4}), '--seeds=0-1',
      '--grid=train.learning_rate=[0.05,0.2]', '--norecord', '--compile_cache=',
      cwd=tmp_path)
  assert done.returncode == 0, done.stderr
  runs = [json.loads(path.read_text())
          for path in tmp_path.glob('runs/*/*/*/result.json')]
  assert sorted((run['config']['train']['learning_rate'], run['seed'],
                 run['changes'].get('train.learning_rate'))
                for run in runs) == [
      (0.05, 0, None), (0.05, 1, None), (0.2, 0, 0.05), (0.2, 1, 0.05)]
  assert 'Best of 2 settings by validation: train.learning_rate=' in (
      done.stdout)
  assert done.stdout.count('test accuracy') == 1


@pytest.mark.full
def test_a_stop_decides_whatever_else_has_failed(mini_data, tmp_path):
  arguments = [
      f'--config={ROOT}/configs/simpletron.py:listops_mini',
      *tiny.flags(**{'data_dir': mini_data, 'train.steps': 4}), '--norecord',
      '--seeds=0-1', '--at_once=1', '--compile_cache=']
  done = commands.run('run_lra', *arguments, '--max_minutes=0', cwd=tmp_path)
  assert done.returncode == 75, done.stderr
  assert commands.run('run_lra', *arguments, cwd=tmp_path).returncode == 0
  spoilt, other = sorted(tmp_path.glob('runs/*/*/*/result.json'))
  spoilt.write_text('damaged')
  other.unlink()
  done = commands.run('run_lra', *arguments, '--max_minutes=0', cwd=tmp_path)
  assert done.returncode == 75 and str(spoilt.parent.name) in done.stderr
  done = commands.run('run_lra', *arguments, cwd=tmp_path)
  assert done.returncode == 2 and 'result.json' in done.stderr


@pytest.mark.full
@pytest.mark.parametrize('environment, arguments, words', [
    ({'TFDS_DATA_DIR': 'd\udcff'}, [MINI], ['d\\udcff', 'not UTF-8']),
    ({}, [MINI, '--workdir=a\udcff'], ['a\\udcff', 'not UTF-8']),
    ({}, [MINI, '--workdir=' + 300 * 'a'], ['aaa ... aaa', 'too long']),
    ({}, [MINI, '--seeds=' + 5000 * '1'], ['seeds=111', '... is'])])
def test_odd_paths_and_numbers_are_one_sentence(
    tmp_path, environment, arguments, words):
  done = commands.run('run_lra', *arguments, '--norecord', cwd=tmp_path,
                      **environment)
  assert done.returncode == 2
  line, = done.stderr.splitlines()
  assert line.startswith('error: ') and len(line) < 500
  for word in words:
    assert word in line


def test_without_a_home_nothing_compiled_is_kept(monkeypatch, capsys):
  def homeless(path):
    raise RuntimeError('Could not determine home directory.')

  monkeypatch.setattr(pathlib.Path, 'expanduser', homeless)
  command_lib.use_compile_cache('~/there')
  assert '--compile_cache' in capsys.readouterr().err


@pytest.mark.full
def test_an_edited_model_is_not_taken_for_the_one_that_was_trained(
    mini_data, tmp_path):
  """After the edit, training, evaluation and `runs` each print one warning."""
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  changes = {'data_dir': str(mini_data), 'train.steps': 4}
  (tmp_path / 'a.toml').write_text(
      '[[runs]]\nmodels = ["simpletron"]\ntasks = ["listops_mini"]\n'
      f'set = {tiny.table(**changes)}')
  train = ['--config=configs/simpletron.py:listops_mini',
           *tiny.flags(**changes), '--norecord', '--compile_cache=']

  def said(*arguments, code=0):
    done = commands.run('run_lra', *arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    return [line for line in done.stderr.splitlines()
            if line.startswith('lra/models/')]

  def forget(name):
    """Replaces the recorded hash of the model's file by another."""
    kept = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(kept | {'model_sha256': '0' * 64}))

  assert not said(*train, '--max_minutes=0', code=75)
  folder, = (path.parent for path in tmp_path.glob('runs/*/*/*/config.json'))
  forget('env.json')
  warned, = said(*train)
  assert f' {folder.relative_to(tmp_path)} ' in warned
  assert provenance.GOES_ON in warned
  edited = [(train, provenance.FINISHED),
            (['runs', 'a.toml', '--norecord'], provenance.FINISHED),
            (['runs', 'a.toml', '--status'], provenance.FINISHED),
            (['evaluate', f'{folder}'], provenance.LOADED)]
  for command, _ in edited:
    assert not said(*command)
  forget('env.json')
  forget('result.json')
  for command, words in edited:
    warned, = said(*command)
    assert words in warned, command
