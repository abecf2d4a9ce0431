"""Tests runs as jobs, on this machine and, if installed, on a real Slurm."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from lra.core import files
from lra.core.errors import UserError
from lra.many import jobs
from tests.helpers import commands, slurm, tiny
from tests.helpers.paths import ROOT
from tests.helpers.processes import end

MODELS = ('simpletron', 'linear_transformer', 'local')
TINY = tiny.table(**{
    'train.steps': 300, 'train.eval_every': 100, 'train.log_every': 50,
    'train.eval_batch_size': 100, 'train.checkpoint_minutes': 0.02})


def _train(folder, data_dir, *flags, ignored=(), **environment):
  """Trains six runs in a session of its own, which ignores some signals."""
  def ignore():
    for number in ignored:
      signal.signal(number, signal.SIG_IGN)

  folder.mkdir(exist_ok=True)
  if not (folder / 'configs').exists():
    (folder / 'configs').symlink_to(ROOT / 'configs')
  (folder / 'a.toml').write_text(f'''
      [[runs]]
      models = {list(MODELS)}
      tasks = ["listops_mini"]
      seeds = "0-1"
      set = {TINY}''')
  return subprocess.Popen(
      [sys.executable, str(ROOT / 'run_lra.py'), 'runs', 'a.toml',
       '--norecord', '--compile_cache=xla', *flags], cwd=folder, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
      preexec_fn=ignore if ignored else None, env={
          **os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT),
          'TFDS_DATA_DIR': str(data_dir), **environment})


def _results(folder):
  """Returns {run directory: (status, test scores)} of runs with a result."""
  return {path.parent.relative_to(folder): (result['status'], result['test'])
          for path in folder.glob('runs/*/*/*/result.json')
          for result in [files.read_json(path)]}


@pytest.fixture(scope='module')
def whole(mini_data, tmp_path_factory):
  """Trains all runs without jobs and returns its results."""
  folder = tmp_path_factory.mktemp('whole')
  code, out, errors = end(_train(folder, mini_data))
  assert code == 0, errors
  results = _results(folder)
  assert len(results) == 6 and {s for s, _ in results.values()} == {'ok'}
  return results


_HERE = '--executor=local', '--jobs=2', '--cpus=1'


def _begun(folder, process, count=3):
  """Waits until `count` runs have logged."""
  while len(list(folder.glob('runs/listops_mini/*/*/metrics.jsonl'))) < count:
    assert process.poll() is None, process.communicate()
    time.sleep(0.05)


def _others(process, mark):
  """Lists commands of the processes with LRA_MARK=`mark`, except `process`."""
  found = []
  for path in pathlib.Path('/proc').glob('[0-9]*/environ'):
    with contextlib.suppress(OSError):
      if path.parent.name != str(process.pid) and (
          f'LRA_MARK={mark}\0'.encode() in path.read_bytes()):
        found.append((path.parent / 'cmdline').read_bytes())
  return found


@pytest.mark.full
@pytest.mark.skipif(sys.platform != 'linux', reason='looks into /proc')
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_jobs_here_are_stopped_by_a_signal_to_the_group_and_go_on(
    mini_data, tmp_path, whole, number):
  """The signal goes to the process group, like Ctrl-C in a terminal."""
  mark = {'LRA_MARK': str(tmp_path)}
  process = _train(tmp_path, mini_data, *_HERE, **mark)
  _begun(tmp_path, process)
  assert len(_others(process, tmp_path)) >= 3
  os.killpg(process.pid, number)
  said = ''
  while 'The jobs have stopped' not in said:
    assert (line := process.stderr.readline()), said
    said += line
  left = _others(process, tmp_path)
  code, out, errors = end(process)
  assert not left
  assert code == 75 and out.startswith('2 jobs: '), (out, errors)
  assert 'Traceback' not in said
  assert 'stopped' in {status for status, _ in _results(tmp_path).values()}
  code, out, errors = end(_train(tmp_path, mini_data, *_HERE))
  assert code == 0 and '\n6 of 6 runs are finished.\n' in out, errors
  assert _results(tmp_path) == whole
  code, out, _ = end(_train(tmp_path, mini_data, *_HERE))
  assert code == 0 and 'jobs: ' not in out


@pytest.mark.full
def test_jobs_of_a_script_in_the_background_hear_no_ctrl_c(
    mini_data, tmp_path, whole):
  process = _train(tmp_path, mini_data, *_HERE, ignored=[signal.SIGINT])
  _begun(tmp_path, process)
  os.killpg(process.pid, signal.SIGINT)
  code, out, errors = end(process)
  assert code == 0 and '\n6 of 6 runs are finished.\n' in out, errors
  assert _results(tmp_path) == whole


@pytest.mark.full
@pytest.mark.skipif(sys.platform != 'linux', reason='looks into /proc')
@pytest.mark.parametrize('numbers', [
    [signal.SIGINT, signal.SIGINT], [signal.SIGKILL]])
def test_a_command_that_ends_at_once_leaves_no_job(
    mini_data, tmp_path, numbers):
  process = _train(tmp_path, mini_data, *_HERE, LRA_MARK=str(tmp_path))
  _begun(tmp_path, process)
  for number in numbers:
    process.send_signal(number)
    time.sleep(0.1)
  process.communicate(timeout=60)
  _wait(lambda: not _others(process, tmp_path))


@pytest.fixture
def cluster_here(tmp_path_factory):
  why = slurm.missing()
  if why:
    pytest.skip(why)
  made = slurm.Slurm(tmp_path_factory.mktemp('slurm'))
  yield made
  made.close()


def _wait(found):
  deadline = time.monotonic() + 240
  while not found():
    assert time.monotonic() < deadline
    time.sleep(0.1)


@pytest.mark.full
def test_jobs_of_slurm_are_disturbed_and_end_the_same(
    mini_data, tmp_path, whole, cluster_here):
  """One job is preempted, one requeued, one cancelled and submitted again."""
  def submit():
    code, out, errors = end(_train(
        tmp_path, mini_data, '--executor=slurm', '--hours=1',
        '--partition=main', **cluster_here.environment))
    assert code == 0, errors
    return out.split(';')[0].split()[2:]

  def logged(model):
    return list(tmp_path.glob(f'runs/listops_mini/{model}/*/metrics.jsonl'))

  jobs = submit()
  assert len(jobs) == 3
  for job, model, disturb in zip(jobs, MODELS, (
      ('scancel', '--signal=USR2'), ('scontrol', 'requeue'), ('scancel',)),
      strict=True):
    _wait(lambda model=model: len(logged(model)) == 2)
    cluster_here.ask(*disturb, job)
  # Slurm delays a requeued job by two minutes; this starts it at once.
  def ended():
    for job in cluster_here.jobs():
      cluster_here.ask('scontrol', 'update', f'JobId={job}', 'StartTime=now')
    return not cluster_here.jobs()

  _wait(ended)
  results = _results(tmp_path)
  by_model = {model: {status for run, (status, _) in results.items()
                      if run.parts[2] == model} for model in MODELS}
  assert by_model == {MODELS[0]: {'ok'}, MODELS[1]: {'ok'},
                      MODELS[2]: {'stopped'}}
  assert len(submit()) == 1  # the cancelled job
  _wait(ended)
  assert _results(tmp_path) == whole


def test_the_script_for_slurm_is_printed_without_slurm(here):
  pytest.importorskip('submitit')
  (here / 'a.toml').write_text(
      '[[runs]]\nmodels = ["simpletron", "transformer", "local"]\n'
      'tasks = ["listops_mini"]\n')
  done = commands.run(
      'run_lra', 'runs', 'a.toml', '--executor=slurm', '--show_script',
      '--jobs=2', '--gpus=1', '--hours=1.5', '--partition=big', cwd=here,
      PATH='')
  assert done.returncode == 0, done.stderr
  for line in ('--array=0-2%2', '--time=90', '--partition=big', '--part=3/3',
               '--gpus-per-node=1'):
    assert line in done.stdout, line
  assert not (here / 'runs').exists()


def test_without_slurm_or_submitit_is_one_sentence(monkeypatch):
  monkeypatch.setenv('PATH', '')
  with pytest.raises(UserError, match='srun.*--executor=local'):
    jobs.check()
  monkeypatch.setattr(jobs.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(UserError, match=r"pip install -e '.\[slurm\]'"):
    jobs.check()


@pytest.mark.parametrize(('visible', 'gpus', 'want'), [
    ('3,5', 0, [None] * 3), ('3,5', 1, ['3', '5', '3']),
    ('', 2, ['0,1', '2,3', '4,5'])])
def test_jobs_here_have_gpus_of_their_own(monkeypatch, visible, gpus, want):
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', visible)
  assert [jobs.share(index, None, gpus)[0].get('CUDA_VISIBLE_DEVICES')
          for index in range(3)] == want


def test_jobs_here_have_cores_of_their_own(monkeypatch):
  monkeypatch.setattr(
      jobs.os, 'sched_getaffinity', lambda pid: {4, 5, 6}, raising=False)
  assert [jobs.share(index, 2, 0)[1] for index in range(3)] == [
      [4, 5], [4, 6], [5, 6]]
  assert jobs.share(0, None, 0)[1] == []
