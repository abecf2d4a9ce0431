"""Tests sweeps: the sweep file, and a sweep that is killed and restarted."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest
from absl import flags
from absl.testing import flagsaver

from lra import models
from lra.board import inputs
from lra.cli import launch_sweep
from lra.core import files, signals
from lra.core.errors import BUG, USER_ERROR, UserError
from lra.many import cluster, runner, sweep
from tests.helpers import commands, committed, tiny
from tests.helpers.paths import ROOT

TINY = tiny.words(**{
    'train.steps': 40, 'train.eval_every': 10, 'train.log_every': 5,
    'train.checkpoint_minutes': 0.001})


def _write(tmp_path, text):
  path = tmp_path / 'sweep.txt'
  path.write_text(text)
  return path


def test_a_line_is_a_config_with_seeds_and_changes(tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  entries = sweep.read(_write(tmp_path, (
      '# comment\n\n'
      'configs/simpletron.py:listops_mini seeds=0,2-3 train.steps=7  # why\n'
      'configs/transformer.py:text,protocol=lra\n')))
  assert [e.flags[-1] for e in entries] == [
      f'--config.seed={s}' for s in (0, 2, 3, 0)]
  assert len({e.folder for e in entries}) == 4
  assert entries[0].folder.name[:8] == entries[1].folder.name[:8]
  assert entries[3].folder.parts[:3] == ('runs', 'text', 'transformer')
  assert {e.status() for e in entries} <= {'new', 'started', 'ok'}


@pytest.mark.parametrize('line,word', [
    ('configs/simpletron.py:listops_mini train.stepz=7', 'stepz'),
    ('configs/simpletron.py:nothing', 'nothing'),
    ('configs/nobody.py:listops', 'nobody'),
    ('configs/simpletron.py:listops seeds=x', 'seeds=x'),
    ('configs/simpletron.py:listops seeds=1,0-2', 'seed twice'),
    ('configs/simpletron.py:listops train.steps=[]', 'no value'),
    ('configs/simpletron.py:listops train.steps=[1,x]', 'train.steps'),
    ('configs/simpletron.py:listops train.steps=[1,,2]', 'an empty value'),
    ('configs/simpletron.py:listops train.lengths=[(1,()]', 'bracket'),
])
def test_a_bad_line_is_named(tmp_path, monkeypatch, line, word):
  monkeypatch.chdir(ROOT)
  with pytest.raises(UserError, match=f'line 2: .*{word}'):
    sweep.read(_write(tmp_path, f'# first\n{line}\n'))


def test_a_byte_order_mark_is_no_part_of_a_line(tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  path = tmp_path / 'sweep.txt'
  path.write_text('configs/simpletron.py:listops_mini\n', 'utf-8-sig')
  entry, = sweep.read(path)
  assert entry.flags[0] == '--config=configs/simpletron.py:listops_mini'


@pytest.mark.parametrize('again', ['', ' data_dir=elsewhere', ' seeds=1,0'])
def test_a_run_may_not_be_named_twice(tmp_path, monkeypatch, again):
  monkeypatch.chdir(ROOT)
  line = 'configs/simpletron.py:listops_mini'
  with pytest.raises(UserError, match='line 3: .*line 1: remove one'):
    sweep.read(_write(tmp_path, f'{line}\n\n{line}{again}\n'))


def _sweep(tmp_path, monkeypatch, seeds):
  """Returns a sweep and the list to which its runs add their flags.

  The runs are not trained.
  """
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  monkeypatch.chdir(tmp_path)
  called = []
  monkeypatch.setattr(
      runner, '_call', lambda *flags, **_: called.append(flags) or 0)
  return sweep.read(_write(
      tmp_path, f'configs/simpletron.py:listops_mini seeds={seeds}\n')), called


@pytest.mark.parametrize('content', ['', '{}', '[]', 'null', '{"status": 3}'])
def test_a_damaged_result_ends_nothing(tmp_path, monkeypatch, content):
  entries, called = _sweep(tmp_path, monkeypatch, '0-2')
  damaged = entries[1].folder / 'result.json'
  damaged.parent.mkdir(parents=True)
  damaged.write_text(content)
  runner.run(entries)
  assert [f[-1] for f in called] == ['--seeds=0,1,2']


def test_no_minutes_are_no_runs(tmp_path, monkeypatch):
  entries, called = _sweep(tmp_path, monkeypatch, '0-1')
  assert runner.run(entries, max_minutes=0)
  assert not called
  assert not runner.run(entries)
  assert len(called) == 1


def test_only_unfinished_seeds_run(tmp_path, monkeypatch):
  entries, called = _sweep(tmp_path, monkeypatch, '0-3')
  record = next((ROOT / 'lra/results/runs').rglob('*.json')).read_text()
  for entry in entries[1:3]:
    entry.folder.mkdir(parents=True)
    (entry.folder / 'result.json').write_text(record)
  runner.run(entries)
  assert [f[-1] for f in called] == ['--seeds=0,3']


def test_configs_that_share_a_compiled_step_share_a_process(
    tmp_path, monkeypatch):
  """The configs must be of one line and have the same unfinished seeds."""
  _, called = _sweep(tmp_path, monkeypatch, '0')
  config = 'configs/simpletron.py:listops_mini'
  entries = sweep.read(_write(tmp_path, (
      f'{config} seeds=0-1 train.learning_rate=[0.1,0.2,0.3] '
      f'train.steps=[10,20]\n{config} train.learning_rate=0.4\n')))
  done = next(e for e in entries if '=0.3' in e.title and '=10' in e.title)
  done.folder.mkdir(parents=True)
  (done.folder / 'result.json').write_text(
      next((ROOT / 'lra/results/runs').rglob('*.json')).read_text())
  runner.run(entries)
  first, rate = f'--config={config}', 'train.learning_rate'
  grids = [f'--grid={rate}=0.{n}' for n in (1, 2, 3)]
  assert called == [
      (first, '--config.train.steps=10', *grids[:2], '--seeds=0,1'),
      (first, f'--config.{rate}=0.3', '--config.train.steps=10', '--seeds=1'),
      (first, '--config.train.steps=20', *grids, '--seeds=0,1'),
      (first, f'--config.{rate}=0.4', '--seeds=0')]


def test_values_in_brackets_are_runs_of_their_own(tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  entries = sweep.read(_write(tmp_path, (
      'configs/simpletron.py:listops train.learning_rate=[0.1,0.2] seeds=0-1 '
      'train.lengths=[(500,1000),()]\n')))
  assert len(entries) == len({e.folder for e in entries}) == 8
  assert [' '.join(e.title.split()[1:]) for e in entries[:3]] == [
      'train.learning_rate=0.1 train.lengths=(500,1000) seed=0',
      'train.learning_rate=0.1 train.lengths=(500,1000) seed=1',
      'train.learning_rate=0.1 train.lengths=() seed=0']


def test_values_in_brackets_are_whole(tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  groups = '(("encoder/.*",None),(".*",{}))'
  entries = sweep.read(_write(tmp_path, (
      f'configs/simpletron.py:listops optim.groups=[{groups}, ()]\n'
      'configs/simpletron.py:text train.learning_rate=[0.1, 0.2]\n')))
  assert [entry.flags[1] for entry in entries] == [
      f'--config.optim.groups={groups}', '--config.optim.groups=()',
      '--config.train.learning_rate=0.1', '--config.train.learning_rate=0.2']
  assert len({entry.folder for entry in entries}) == 4


def test_shards_are_all_runs_once(tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  entries = sweep.read(_write(tmp_path, (
      'configs/simpletron.py:listops train.steps=[10,20,30,40] seeds=0-1\n')))
  shards = [sweep.shard(entries, f'{i}/3') for i in (1, 2, 3)]
  assert [len(s) for s in shards] == [4, 2, 2]
  assert sorted(e.title for s in shards for e in s) == sorted(
      e.title for e in entries)
  for part in ('0/3', '4/3', '1', '1/0', 'a/b'):
    with pytest.raises(UserError, match=f'--shard={part} is not possible'):
      sweep.shard(entries, part)


@pytest.fixture
def calls(monkeypatch, tmp_path):
  """Returns the list to which each started run adds its flags.

  The runs are not trained and end with exit code 0.
  """
  made = []
  monkeypatch.setattr(
      runner, '_call', lambda *flags, **_: made.append(flags) or 0)
  return made


@pytest.mark.full
def test_runs_that_failed_are_counted_and_their_lines_named(
    mini_data, tmp_path):
  """Runs that failed before training are still `new`; the other run is trained.
  """
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  line = f'configs/simpletron.py:listops_mini {TINY}'
  _write(tmp_path, (
      f'{line} seeds=0-1 data_dir=/dev/null/no\n# why\n'
      f'{line} train.learning_rate=1e30 train.warmup_steps=0 '
      f'data_dir={mini_data}\n'))
  command = '--sweep=sweep.txt', '--norecord', '--compile_cache='
  done = commands.run('run_lra', *command, cwd=tmp_path)
  assert done.returncode == USER_ERROR, done.stderr
  said = done.stderr.splitlines()[-1]
  assert said.startswith('error: ') and '2 of 3 ' in said and 'line 1 ' in said
  assert done.stdout.endswith('1 of 3 runs are finished.\n')
  again = commands.run('run_lra', *command, '--status', cwd=tmp_path)
  assert [row.split()[0] for row in again.stdout.splitlines()[1:4]] == [
      'new', 'new', 'diverged']
  stopped = commands.run('run_lra', *command, '--max_minutes=0', cwd=tmp_path)
  assert stopped.returncode == signals.STOPPED and not stopped.stderr


@pytest.mark.parametrize('codes, exit_code, told', [
    ((2, 3, 4), USER_ERROR, ['3 of 3 runs have failed (lines 1, 2, 3 ']),
    ((2, 1, -11), BUG, ['1 of 3 runs has failed (line 1 ',
                        '2 of 3 runs have ended by an internal error or a '
                        'signal (lines 2, 3 ']),
    ((1, 1, 1), BUG, ['3 of 3 runs have ended by'])])
def test_a_bug_is_not_told_as_the_users(
    tmp_path, monkeypatch, capsys, codes, exit_code, told):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  _write(tmp_path, ''.join(f'configs/{name}.py:listops_mini\n' for name in (
      'fnet', 'simpletron', 'transformer')))
  left = list(codes)
  monkeypatch.setattr(runner, '_call', lambda *_, **__: left.pop(0))
  with flagsaver.flagsaver():
    flags.FLAGS(['lra', '--sweep=sweep.txt', '--norecord', '--compile_cache='])
    try:
      code, said = launch_sweep.run(), capsys.readouterr().err
    except UserError as e:
      code, said = USER_ERROR, str(e)
  assert code == exit_code
  for words in told:
    assert words in said
  assert ('correct the error' in said) is (2 in codes)


@pytest.mark.parametrize('more', [[], ['--status']])
def test_a_part_without_runs_says_so(tmp_path, more):
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  _write(tmp_path, 'configs/simpletron.py:listops_mini train.steps=[7,8]\n')
  done = commands.run(
      'run_lra', '--sweep=sweep.txt', '--shard=3/3', *more, cwd=tmp_path)
  assert done.returncode == 0 and not done.stderr
  assert done.stdout == (
      '--shard=3/3 has no run: the sweep has only 2 configs, and a part has '
      'whole configs.\n')


@pytest.fixture
def recorded(tmp_path, monkeypatch):
  """Writes a sweep of three configs; the first two have a record of seed 0."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  runs = tmp_path / 'results/runs/listops_mini'
  runs.mkdir(parents=True)
  names = 'fnet', 'simpletron', 'transformer'
  for name in names[:2]:
    kept, = committed.records('listops_mini', name)
    shutil.copy(kept, runs)
  return _write(tmp_path, ''.join(
      f'configs/{name}.py:listops_mini seeds=0-{number}\n'
      for number, name in enumerate(names)))


MISSING = ['--sweep=sweep.txt', '--results_dir=results', '--missing']


def test_recorded_runs_are_left_out_on_request(recorded, tmp_path):
  done = commands.run('run_lra', *MISSING[:2], '--status', cwd=tmp_path)
  assert [row.split()[0] for row in done.stdout.splitlines()[1:-1]] == [
      'recorded', 'recorded', *['new'] * 4]
  done = commands.run('run_lra', *MISSING, '--status', cwd=tmp_path)
  first, *table = done.stdout.splitlines()
  assert first == '2 of 6 runs are left out: results has a record of each.'
  assert [row.split()[-2:] for row in table[1:-1]] == [
      ['configs/simpletron.py:listops_mini', 'seed=1'],
      *(['configs/transformer.py:listops_mini', f'seed={i}'] for i in range(3))]
  done = commands.run('run_lra', *MISSING, '--shard=1/3', cwd=tmp_path)
  assert done.returncode == 0, done.stderr
  assert done.stdout == (
      '1 of 1 runs are left out: results has a record of each.\n')


def test_jobs_of_what_is_missing_count_their_parts_in_the_whole(
    recorded, monkeypatch):
  made = []
  monkeypatch.setattr(cluster, 'check', lambda executor: None)
  monkeypatch.setattr(
      cluster, 'submit', lambda *of, **_: made.extend(of[1]) or [])
  with flagsaver.flagsaver():
    flags.FLAGS(['lra', *MISSING, '--executor=slurm'])
    assert launch_sweep.run() == 0
  assert [(job[1], job[-1]) for job in made] == [
      ('--shard=2/3', '--missing'), ('--shard=3/3', '--missing')]


def _entry(folder, content=None):
  folder.mkdir()
  if content is not None:
    (folder / 'result.json').write_text(content)
  return sweep.Entry((f'--config={folder.name}',), folder)


def test_a_finished_run_without_its_record_is_called_again(tmp_path, calls):
  record = next((ROOT / 'lra/results/runs').rglob('*.json')).read_text()
  entry = _entry(tmp_path / 'a', record)
  runner.run([entry])
  assert not calls and not sweep.left([entry], lambda result: True)
  on_page = []
  runner.run([entry], recorded=lambda result: on_page)
  assert len(calls) == 1 and sweep.left([entry], lambda result: on_page)
  on_page.append(True)
  runner.run([entry], recorded=lambda result: on_page)
  assert len(calls) == 1


def test_no_minutes_are_no_time(tmp_path, calls):
  assert runner.run([_entry(tmp_path / 'a')], max_minutes=0)
  assert not calls


@pytest.mark.parametrize('minutes, codes, stopped, made', [
    (None, (2, 0, 4), False, 3), (None, (-9, 1, 3), False, 3),
    (None, (2, 75, 0), True, 2), (60, (2, 75, 0), True, 3)])
def test_only_a_stop_is_one_and_failures_end_nothing(
    tmp_path, monkeypatch, minutes, codes, stopped, made):
  entries = [_entry(tmp_path / name) for name in 'abc']
  left = list(codes)
  monkeypatch.setattr(runner, '_call', lambda *_, **__: left.pop(0))
  assert runner.run(
      [dataclasses.replace(entry, flags=(*entry.flags, '--config.seed=0'))
       for entry in entries], max_minutes=minutes) is stopped
  assert len(left) == 3 - made


@pytest.mark.parametrize('path', sorted((ROOT / 'configs/sweeps').iterdir()))
def test_sweeps_of_the_repository(path, monkeypatch):
  monkeypatch.chdir(ROOT)
  entries = sweep.read(path)
  assert len(entries) >= 36
  if path.stem in ('mini', 'nystrom', 'probes'):
    # --config=configs/<model>.py:<task>
    assert {pathlib.Path(entry.flags[0].split(':')[0]).stem
            for entry in entries} == set(models.names())


def test_the_sweep_of_nystrom_makes_recorded_runs_again(monkeypatch):
  """Each recorded nystrom seed with unchanged settings is in the sweep.

  If a seed has two records, one of the two runs is enough.
  """
  monkeypatch.chdir(ROOT)
  named = {'-'.join(entry.folder.parts[1:]) for entry in sweep.read(
      ROOT / 'configs/sweeps/nystrom.txt')}
  made = {}
  runs = ROOT / 'lra/results/runs'
  for path in (*runs.glob('listops/*.json'), *runs.glob('text/*.json')):
    run = files.read_json(path)
    if run['protocol'] == 'nystrom' and not run.get('changes'):
      made.setdefault((run['task'], run['model'], run['seed']), []).append(
          f'{run["task"]}-{path.stem}' in named)
  assert len(made) > 12
  # The first record of simpletron's seed 0 has other `train.lengths`.
  missing = {run for run, found in made.items() if not any(found)}
  assert missing <= {('listops', 'simpletron', 0)}


def test_the_sweep_of_the_arena_has_its_six_tasks_under_one_protocol(
    monkeypatch):
  monkeypatch.chdir(ROOT)
  entries = sweep.read(ROOT / 'configs/sweeps/lra.txt')
  tasks = {entry.folder.parts[1] for entry in entries}
  assert tasks == set(inputs.SCORES)
  assert all(entry.flags[0].endswith(',protocol=lra') for entry in entries)


def _start(folder, data_dir):
  (folder / 'results').mkdir(parents=True, exist_ok=True)
  shutil.copy(ROOT / 'lra/results/published.csv', folder / 'results')
  if not (folder / 'configs').exists():
    (folder / 'configs').symlink_to(ROOT / 'configs')
  _write(folder, (
      f'configs/simpletron.py:listops_mini seeds=0-1 {TINY}\n'
      f'configs/simpletron.py:listops_mini {TINY} train.learning_rate=1e30 '
      'train.warmup_steps=0\n'))
  return subprocess.Popen(
      [sys.executable, str(ROOT / 'run_lra.py'), '--sweep=sweep.txt',
       '--record', '--results_dir=results', '--page=page.md',
       f'--compile_cache={folder.parent / "xla"}'],
      cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT),
           'TFDS_DATA_DIR': str(data_dir)})


def _records(folder):
  """Returns {file name: record}, without measured times and memory."""
  measured = ('seconds', 'per_s', 'bytes')
  return {
      p.name: {k: v for k, v in files.read_json(p).items()
               if not k.endswith(measured)}
      for p in (folder / 'results/runs').rglob('*.json')}


@pytest.mark.full
def test_kill_9_and_restart_give_the_same_records(mini_data, tmp_path):
  whole, broken = tmp_path / 'whole', tmp_path / 'broken'
  process = _start(whole, mini_data)
  out, errors = process.communicate()
  assert process.returncode == 0, errors
  assert out.count('diverged') >= 2 and '3 of 3 runs' in out

  process = _start(broken, mini_data)
  while len(list(broken.glob('runs/*/*/*/metrics.jsonl'))) < 2:
    assert process.poll() is None
    time.sleep(0.01)
  process.kill()
  process.communicate()
  process = _start(broken, mini_data)
  out, errors = process.communicate()
  assert process.returncode == 0, errors
  assert _records(broken) == _records(whole)
  assert len(_records(whole)) == 3
