"""Tests the processes of runs: what they train, their ends, kills and resumes.
"""

import json
import shutil
import subprocess
import sys
import time

import pytest

from lra.cli import main
from lra.core import machine, signals
from lra.core.errors import BUG, USER_ERROR, UserError
from lra.many import execute, jobs, processes
from lra.many.runs import Run, read
from tests.helpers import commands, committed, same_run, tiny
from tests.helpers.paths import ROOT

RECORD, = committed.records('listops_mini', 'simpletron')


def _options(minutes=None, **others):
  return execute.Options(None, record=False,
                         deadline=execute.deadline(minutes), **others)


def _runs(folder, *names):
  return [Run((f'--config={name}', '--config.seed=0'), folder / name, entry)
          for entry, name in enumerate(names, 1)]


def _finish(run):
  run.folder.mkdir(parents=True)
  (run.folder / 'result.json').write_text(RECORD.read_text())


@pytest.fixture
def called(monkeypatch):
  """Returns the list to which each process adds its runs' titles.

  Nothing is trained; processes end with the codes in `called.codes`, then 0.
  """
  class Called(list):
    codes = []

  made = Called()

  def call(self, runs, more):
    made.append([run.title for run in runs])
    return made.codes.pop(0) if made.codes else 0

  monkeypatch.setattr(processes.Processes, '_call', call)
  return made


def test_a_process_has_the_unfinished_runs_that_share_a_compiled_step(
    here, called):
  (here / 'a.toml').write_text('''
      models = ["simpletron"]
      tasks = ["listops_mini"]
      [[runs]]
      seeds = "0-1"
      grid.train = {steps = [10, 20], learning_rate = [0.1, 0.2]}
      [[runs]]
      set.train.learning_rate = 0.4''')
  runs = read('a.toml')
  _finish(next(run for run in runs if '=0.2' in run.title
               and '=10' in run.title and run.seed == '1'))
  processes.Processes(_options()).train(runs)
  config, rate = 'configs/simpletron.py:listops_mini', 'train.learning_rate'
  assert called == [
      [f'{config} train.steps={steps} {rate}={value} seed={seed}'
       for value, seed in some] for steps, some in (
          (10, [(0.1, 0), (0.1, 1), (0.2, 0)]),
          (20, [(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)]))] + [
              [f'{config} {rate}=0.4 seed=0']]


@pytest.mark.parametrize('content', ['', '{"status": 3}'])
def test_a_damaged_result_ends_nothing(tmp_path, called, content):
  runs = _runs(tmp_path, 'a', 'b')
  runs[0].folder.mkdir()
  (runs[0].folder / 'result.json').write_text(content)
  processes.Processes(_options()).train(runs)
  assert called == [[run.title] for run in runs]
  called.clear()
  made = processes.Processes(_options(0))
  made.train(runs)
  assert made.stopped and not called


@pytest.mark.parametrize('codes, stopped, count, broken', [
    ([2, 0, 4], False, 3, ''), ([-9, 1, 3], False, 3, 'ab'),
    ([2, 75, 0], True, 2, '')])
def test_failures_end_nothing_and_a_stop_all(
    tmp_path, called, codes, stopped, count, broken):
  called.codes = list(codes)
  made = processes.Processes(_options())
  made.train(_runs(tmp_path, *'abc'))
  assert (made.stopped, len(called)) == (stopped, count)
  assert {run.folder.name for run in made.broken} == {*broken}


def test_a_finished_run_without_its_record_is_called_again(
    tmp_path, called, monkeypatch):
  run, = runs = _runs(tmp_path, 'a')
  _finish(run)
  published = []
  monkeypatch.setattr(execute.publish, 'done', lambda *_, **__: published)
  options = execute.Options(None, record=True)
  processes.Processes(options).train(runs)
  assert len(called) == 1 and processes.left(runs, options) == runs
  published.append(True)
  processes.Processes(options).train(runs)
  assert len(called) == 1 and not processes.left(runs, options)


@pytest.mark.parametrize('known, expected', [
    (None, 'a'), (100.0, 'a'), (1.0, 'ab')])
def test_what_could_not_even_compile_is_not_begun(
    tmp_path, monkeypatch, capsys, known, expected):
  now, made = [0.0], []
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])

  def call(self, runs, more):
    made.append(runs[0].folder.name)
    now[0] += 50
    return 0

  monkeypatch.setattr(processes.Processes, '_call', call)
  processes.Processes(_options(1.2), compiling=lambda run: known).train(
      _runs(tmp_path, *'abc'))
  assert ''.join(made) == expected
  assert ('is not begun' in capsys.readouterr().out) is (len(made) == 1)


def test_a_process_is_told_at_the_deadline(tmp_path, monkeypatch):
  """Even a process that does not stop itself, as while compiling, is ended."""
  program = tmp_path / 'program.py'
  program.write_text('import time; time.sleep(60)')
  monkeypatch.setattr(processes, 'RUN', program)
  began = time.monotonic()
  made = processes.Processes(_options(0.02))
  made.train(_runs(tmp_path, 'a', 'b'))
  assert made.stopped and time.monotonic() - began < 30


@pytest.mark.parametrize('program, compiled, told', [
    ('', True, False), ('import sys; sys.exit("traceback")', False, True),
    ('import time; time.sleep(60)', False, False)])
def test_the_next_runs_are_compiled_while_others_train(
    tmp_path, called, monkeypatch, capsys, program, compiled, told):
  """A failure is one line; a deadline ends the helper without any."""
  monkeypatch.setattr(processes, 'may_compile_ahead', lambda: True)
  monkeypatch.setattr(processes, 'RUN', tmp_path / 'program.py')
  (tmp_path / 'program.py').write_text(
      f'print(open({str(tmp_path / "ran")!r}, "a").write("x"));{program}')
  made = processes.Processes(
      _options(0.02 if 'sleep' in program else None), cache='cache')
  made.train(_runs(tmp_path, *'ab'))
  assert (tmp_path / 'ran').read_text() == 'x'
  assert bool(made._compiled) is compiled
  assert ('could not be compiled' in capsys.readouterr().err) is told


@pytest.mark.parametrize('device, cores, expected', [
    ('', 16, ['b', 'c']), ('NVIDIA H200', 2, ['b', 'c']),
    ('NVIDIA H200', 6, ['bcd', 'cde'])])
def test_with_a_gpu_several_runs_compile_at_once(
    tmp_path, monkeypatch, device, cores, expected):
  """A stop ends those that compile; runs that have begun are left out."""
  monkeypatch.setattr(machine, 'accelerator', lambda: device)
  monkeypatch.setattr(machine, 'cpu_count', lambda: cores)
  monkeypatch.setattr(processes, 'may_compile_ahead', lambda: True)
  monkeypatch.setattr(processes, 'RUN', tmp_path / 'program.py')
  (tmp_path / 'program.py').write_text(
      'import sys, time; time.sleep(60 * (sys.argv[1][-1] in "de"))')
  begun, codes = [], [0, 0, signals.STOPPED]
  made = processes.Processes(_options(), cache='cache')
  helpers = []

  def call(runs, more):
    begun.append(runs[0].folder.name)
    helpers.append(dict(made._helpers))
    return codes.pop(0)

  monkeypatch.setattr(made, '_call', call)
  made.train(_runs(tmp_path, *'abcde'))
  assert begun == [*'abc']
  names = [''.join(shape[0][-1] for shape in some) for some in helpers]
  assert names[:2] == expected
  assert all(child.returncode is not None
             for some in helpers for child in some.values())


@pytest.mark.parametrize('device, cores, taken, expected', [
    ('', 2, None, False), ('', 4, None, True), ('NVIDIA H200', 1, None, True),
    ('NVIDIA H200', 1, 'false', True), ('NVIDIA H200', 16, 'true', False),
    ('TPU', 16, None, False)])
def test_where_it_would_be_slow_nothing_is_compiled_ahead(
    monkeypatch, device, cores, taken, expected):
  monkeypatch.setattr(machine, 'accelerator', lambda: device)
  monkeypatch.setattr(machine, 'cpu_count', lambda: cores)
  name = 'XLA_PYTHON_CLIENT_PREALLOCATE'
  monkeypatch.delenv(name, raising=False)
  if taken:
    monkeypatch.setenv(name, taken)
  assert processes.may_compile_ahead() is expected


@pytest.mark.parametrize('codes, exit_code, told', [
    ((2, 3, 4), USER_ERROR, ['3 of 3 runs have failed (configs/fnet.py:']),
    ((2, 1, -11), BUG, ['1 of 3 runs has failed (configs/fnet.py:',
                        '2 of 3 runs have ended by an internal error or a '
                        'signal (configs/simpletron.py:']),
    ((1, 1, 1), BUG, ['3 of 3 runs have ended by'])])
def test_a_bug_is_not_told_as_the_users(
    here, called, capsys, codes, exit_code, told):
  called.codes = list(codes)
  (here / 'a.toml').write_text('''[[runs]]
      models = ["fnet", "simpletron", "transformer"]
      tasks = ["listops_mini"]''')
  try:
    code = main.main(['runs', 'a.toml', '--norecord', '--compile_cache='])
    said = capsys.readouterr().err
  except UserError as e:
    code, said = USER_ERROR, str(e)
  assert code == exit_code
  for words in told:
    assert words in said
  assert ('correct the error' in said) is (2 in codes)


@pytest.mark.parametrize('grid, hidden', [
    ('grid.train.learning_rate = [0.1, 0.2]', True), ('', False)])
def test_runs_of_settings_that_are_compared_print_no_test_score(
    here, monkeypatch, grid, hidden):
  passed = []
  monkeypatch.setattr(
      processes.Processes, '_call',
      lambda self, *_: passed.extend(self._passed) or 2)
  (here / 'a.toml').write_text(
      f'[[runs]]\nmodels = ["simpletron"]\ntasks = ["parity"]\n{grid}')
  with pytest.raises(UserError, match='have failed|has failed'):
    main.main(['runs', 'a.toml', '--compile_cache='])
  assert ('--hide_test' in passed) is hidden


@pytest.fixture
def recorded(here):
  """Writes runs of three configs; the first two have a record of seed 0."""
  folder = here / 'results/runs/listops_mini'
  folder.mkdir(parents=True)
  names = 'fnet', 'simpletron', 'transformer'
  for name in names[:2]:
    kept, = committed.records('listops_mini', name)
    shutil.copy(kept, folder)
  (here / 'a.toml').write_text('tasks = ["listops_mini"]\n' + ''.join(
      f'[[runs]]\nmodels = ["{name}"]\nseeds = "0-{number}"\n'
      for number, name in enumerate(names)))
  return 'a.toml', '--results_dir=results'


def test_recorded_runs_are_left_out_on_request(recorded, capsys):
  def said(*more):
    assert main.main(['runs', *recorded, *more]) == 0
    return capsys.readouterr().out.splitlines()

  assert [row.split()[0] for row in said('--status')[1:-1]] == [
      'recorded', 'recorded', *['new'] * 4]
  first, *table = said('--missing', '--status')
  assert first == '2 of 6 runs are left out: results has a record of each.'
  assert [row.split()[-2:] for row in table[1:-1]] == [
      ['configs/simpletron.py:listops_mini', 'seed=1'],
      *(['configs/transformer.py:listops_mini', f'seed={i}'] for i in range(3))]
  assert said('--missing', '--part=1/3') == [
      '1 of 1 runs are left out: results has a record of each.']
  assert said('--part=4/4') == ['--part=4/4 has no run: the file has only 3 '
                                'parts.']


def test_jobs_of_what_is_missing_are_parts_of_the_whole(recorded, monkeypatch):
  made = []
  monkeypatch.setattr(jobs, 'check', lambda: None)
  monkeypatch.setattr(jobs, 'submit', lambda *of, **_: made.extend(of[1]))
  assert main.main(
      ['runs', *recorded, '--missing', '--executor=slurm', '--norecord']) == 0
  assert [(job[1], job[2], job[-1]) for job in made] == [
      ('a.toml', '--part=2/3', '--missing'),
      ('a.toml', '--part=3/3', '--missing')]
  assert all('--norecord' in job for job in made)


@pytest.mark.parametrize('arguments, word', [
    (['--jobs=2'], '--executor'), (['--gpus=1'], '--executor'),
    (['--hours=2', '--executor=local'], '--executor=slurm'),
    (['--executor=local', '--part=1/2'], '--part'),
    (['--plan', '--status'], '--status'), (['--log=paper'], '--log=paper'),
    (['--part=0/3'], 'write 1/3'), (['--hours=0'], 'at least 0.1')])
def test_flags_that_contradict_each_other_are_named(here, arguments, word):
  with pytest.raises(UserError, match=word):
    main.main(['runs', 'lra', *arguments])


TINY = tiny.table(**{
    'train.steps': 40, 'train.eval_every': 10, 'train.log_every': 5,
    'train.checkpoint_minutes': 0.001})


@pytest.mark.full
def test_kill_9_and_restart_give_the_same_records(
    mini_data, broken_and_whole):
  """One of the four runs fails before training, and one diverges."""
  broken, whole, ends = broken_and_whole(['runs', 'a.toml'], [2], f'''
      models = ["simpletron"]
      tasks = ["listops_mini"]
      set = {TINY}
      [[runs]]
      seeds = "0-1"
      [[runs]]
      set.train = {{learning_rate = 1e30, warmup_steps = 0}}
      [[runs]]
      set = {{"data_dir" = "/dev/null/no", "dtype" = "bfloat16"}}''',
                                         TFDS_DATA_DIR=str(mini_data))
  assert [code for code, *_ in ends] == [USER_ERROR] * 2, ends
  _, out, errors = ends[1]
  said = errors.splitlines()[-1]
  assert said.startswith('error: 1 of 4 runs has failed (configs/simpletron.py')
  assert out.count('diverged') >= 2 and '\n3 of 4 runs are finished.\n' in out
  assert same_run.records(broken) == same_run.records(whole)
  assert len(same_run.records(whole)) == 3
  done = commands.run('run_lra', 'runs', 'a.toml', '--max_minutes=0',
                      '--record', '--results_dir=results', cwd=broken)
  assert done.returncode == signals.STOPPED and not done.stderr


def _run(folder, data_dir, *more):
  subprocess.run(
      [sys.executable, str(ROOT / 'run_lra.py'), '--norecord',
       '--config=configs/simpletron.py:listops_mini', '--compile_cache=cache',
       f'--config.data_dir={data_dir}', '--config.train.steps=2', *more],
      cwd=folder, check=True, capture_output=True, text=True, env={
          **tiny.without_platforms(), 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''})


@pytest.mark.full
def test_a_run_finds_what_was_compiled_for_it(mini_data, tmp_path):
  """After --compile_only, the run compiles neither of its two steps again."""
  _run(tmp_path, mini_data, '--compile_only')
  assert not list(tmp_path.glob('runs/**/*.json'))
  compiled = {path.name for path in (tmp_path / 'cache').glob('*-cache')}
  steps = {name.rpartition('-')[0].rpartition('-')[0] for name in compiled}
  assert {'jit_train_step'} <= steps and len(compiled) == 2
  _run(tmp_path, mini_data)
  added = {path.name for path in (tmp_path / 'cache').glob('*-cache')}
  assert not {name for name in added - compiled
              if name.startswith(tuple(steps))}
  result, = tmp_path.glob('runs/*/*/*/result.json')
  assert json.loads(result.read_text())['status'] == 'ok'
