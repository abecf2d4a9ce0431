"""Tests that stopped and killed runs resume and give the same result."""

import dataclasses
import shutil
import types

import jax
import numpy as np
import pytest

from lra.core import files, machine
from lra.core.errors import UserError
from lra.run import curves, experiment, scoring, train
from lra.run.checkpoint import Checkpoints
from lra.run.counters import RunCounters
from lra.schema import result
from tests.helpers import documents, same_run, small

pytestmark = pytest.mark.usefixtures('compile_once')


def _stop_at(monkeypatch, step):
  """Asks for a stop once `step` updates are made."""

  trainers = []

  class Trainer(train.Trainer):

    def __init__(self, *args):
      super().__init__(*args)
      trainers.append(self)

  class StopAt(train.StopRequest):

    @property
    def reason(self):
      return 'test' if trainers and trainers[-1].step >= step else ''

  monkeypatch.setattr(train, 'StopRequest', StopAt)
  monkeypatch.setattr(train, 'Trainer', Trainer)


@pytest.fixture(scope='module')
def whole(mini_data, tmp_path_factory):
  """Returns the folder of an uninterrupted run of six steps."""
  folder = tmp_path_factory.mktemp('whole')
  result = train.train(same_run.experiment(mini_data, folder))
  assert result.status == 'ok' and result.steps == 6
  return folder


def test_six_steps_equal_three_and_three(
    whole, mini_data, tmp_path, monkeypatch):
  monkeypatch.setattr(curves, 'plot', lambda *_: None)
  with monkeypatch.context() as patch:
    _stop_at(patch, 3)
    stopped = train.train(same_run.experiment(mini_data, tmp_path))
  assert (stopped.status, stopped.steps) == ('stopped', 3)
  assert stopped.test is None
  assert (tmp_path / 'checkpoints' / 'last' / '3').is_dir()
  environment = files.read_json(tmp_path / 'env.json')
  files.write_json(
      tmp_path / 'env.json', {**environment, 'git_commit': 'older'})
  with monkeypatch.context() as patch:
    patch.setattr(machine, 'peak_memory', lambda: 1)
    resumed = train.train(same_run.experiment(mini_data, tmp_path))
  assert 2**20 < resumed.peak_memory_bytes <= stopped.peak_memory_bytes
  same_run.check(whole, tmp_path, same_run.config(mini_data), 4)
  if environment['git_commit']:  # None outside a git checkout
    assert resumed.git_commits == ['older', environment['git_commit']]


def test_a_run_that_is_validated_first_equals_one_that_is_tested_at_once(
    whole, mini_data, tmp_path, monkeypatch):
  """Until then, neither its log nor its result has a test score."""
  monkeypatch.setattr(curves, 'plot', lambda *_: None)
  run = same_run.experiment(mini_data, tmp_path)
  held = train.train(run, tested=False)
  assert (held.status, held.test, held.longer) == ('validated', None, {})
  assert held.val == result.read(whole / 'result.json').val
  assert {line['split'] for line in same_run.metrics(tmp_path)} == {
      'train', 'val'}
  assert train.train(run).status == 'ok'
  same_run.check(whole, tmp_path, same_run.config(mini_data), 4)


def test_a_watched_run_stops_and_resumes(
    whole, mini_data, tmp_path, monkeypatch):
  """It hears of each validation but the last; afterwards nothing is lost."""
  monkeypatch.setattr(curves, 'plot', lambda *_: None)
  run, heard = same_run.experiment(mini_data, tmp_path), []

  def watch(step, accuracy):
    heard.append((step, accuracy))
    return 'enough'

  stopped = train.train(run, tested=False, watch=watch)
  assert (stopped.status, stopped.steps) == ('stopped', heard[0][0])
  assert train.train(run, tested=False, watch=lambda *a: heard.append(a) or ''
                     ).status == 'validated'
  assert heard == [
      (line['step'], line['accuracy']) for line in same_run.metrics(whole)
      if line['split'] == 'val' and line['step'] < 6] != []
  assert train.train(run).status == 'ok'
  same_run.check(whole, tmp_path, same_run.config(mini_data), 4)


def test_without_sound_data_no_run_directory_is_left(mini_data, tmp_path):
  data = tmp_path / 'data'
  shutil.copytree(mini_data, data)
  next(data.rglob('*.array_record*')).write_bytes(b'')
  before = sorted(tmp_path.rglob('*'))
  with pytest.raises(UserError, match='is damaged'):
    train.train(same_run.experiment(data, tmp_path / 'runs' / 'mine'))
  assert [p for p in sorted(tmp_path.rglob('*')) if p.name != '.lock'] == [
      p for p in before if p.name != '.lock']


@pytest.mark.full
def test_a_run_keeps_the_dtype_it_began_with(
    mini_data, tmp_path, monkeypatch):
  """A run with dtype=auto starts on a GPU and resumes on a CPU in bfloat16."""
  c = same_run.config(mini_data)
  c.dtype = 'auto'
  with monkeypatch.context() as patch:
    _stop_at(patch, 3)
    # Patch only `experiment`: the kernels read the backend too.
    patch.setattr(experiment, 'jax', types.SimpleNamespace(
        default_backend=lambda: 'gpu'))
    assert small.experiment(c).dtype == 'bfloat16'
    assert train.train(small.experiment(c, tmp_path)).dtype == 'bfloat16'
  assert small.experiment(c).dtype == 'float32'
  result = train.train(small.experiment(c, tmp_path))
  assert (result.status, result.dtype) == ('ok', 'bfloat16')
  assert result.config['dtype'] == 'auto'


@pytest.mark.full
def test_stop_while_validating_or_testing(
    whole, mini_data, tmp_path, monkeypatch):
  c = same_run.config(mini_data)
  for step in (2, 6):
    with monkeypatch.context() as patch:
      _stop_at(patch, step)
      assert train.train(small.experiment(c, tmp_path)).status == 'stopped'
  train.train(small.experiment(c, tmp_path))
  same_run.check(whole, tmp_path, c, 4)


@pytest.mark.full
def test_a_validation_is_not_made_again(mini_data, tmp_path, monkeypatch):
  """A run stopped in its last validation, then in the test, repeats neither."""
  made, evaluate = [], scoring.evaluate

  def stopping(run, scored, split, stop):
    made.append(split)
    # Simulates that --max_minutes are over now.
    if split == stopped_in and run.step == 6:
      monkeypatch.setattr(train.StopRequest, 'reason', 'time limit')
      return None
    return evaluate(run, scored, split, stop)

  reason = train.StopRequest.reason
  monkeypatch.setattr(scoring, 'evaluate', stopping)
  for stopped_in, want in (('val', ['val'] * 3), ('test', ['val', 'test']),
                           ('test', ['test']), ('', ['test'])):
    monkeypatch.setattr(train.StopRequest, 'reason', reason)
    result = train.train(same_run.experiment(mini_data, tmp_path))
    assert (made, result.status) == (want, 'stopped' if stopped_in else 'ok')
    made.clear()


@pytest.mark.full
def test_the_example_of_the_documents_trains(
    mini_data, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('TFDS_DATA_DIR', str(mini_data))
  example = documents.example('train')
  assert example.count('steps = 100') == 1
  exec(example.replace('steps = 100', 'steps = 2'), {})
  result = files.read_json(tmp_path / 'runs/mine/result.json')
  assert result['steps'] == 2
  assert capsys.readouterr().out == f'{result["test"]["accuracy"]}\n'


def test_norms_are_logged(whole, mini_data):
  """`param_norm` is the norm of the parameters after the update."""
  lines = [x for x in same_run.metrics(whole) if x['split'] == 'train']
  assert [x['step'] for x in lines] == [2, 4, 6]
  assert all(x['grad_norm'] > 0 for x in lines)
  checkpoints = Checkpoints(whole / 'checkpoints', read_only=True)
  state, _ = checkpoints.restore_last(
      small.make(same_run.config(mini_data)).state_shape)
  checkpoints.close()
  want = np.sqrt(sum(np.sum(np.square(np.asarray(x, np.float64)))
                     for x in jax.tree.leaves(state.params)))
  np.testing.assert_allclose(lines[-1]['param_norm'], want, rtol=1e-6)


def test_result_says_what_ran(whole):
  result = files.read_json(whole / 'result.json')
  assert result['kernel'] == 'xla'
  assert sum(map(sum, result['test']['confusion'])) == 1000
  assert result['best_step'] in (2, 4, 6)
  assert result['val']['accuracy'] == max(
      x['accuracy'] for x in same_run.metrics(whole) if x['split'] == 'val')
  assert (whole / 'curves.png').read_bytes()[:4] == b'\x89PNG'


@pytest.mark.full
def test_divergence_is_a_result(mini_data, tmp_path):
  c = same_run.config(mini_data, learning_rate=1e30, warmup_steps=0)
  result = train.train(small.experiment(c, tmp_path))
  assert result.status == 'diverged' and result.test is None
  assert files.read_json(tmp_path / 'result.json')['status'] == 'diverged'


def test_checkpoints_of_before_a_field_of_progress_are_read(tmp_path):
  fields = dataclasses.asdict(RunCounters(timed_steps=3))
  del fields['peak_memory_bytes']
  assert RunCounters.of(fields, tmp_path) == RunCounters(timed_steps=3)
  del fields['timed_steps']
  with pytest.raises(UserError, match=f'{tmp_path} .*--workdir'):
    RunCounters.of(fields, tmp_path)


@pytest.mark.full
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    whole, mini_data, tmp_path, monkeypatch, capfd):
  with monkeypatch.context() as patch:
    _stop_at(patch, 5)
    train.train(same_run.experiment(mini_data, tmp_path))
  for path in (tmp_path / 'checkpoints/last/5/state').rglob('*'):
    if path.is_file():
      path.write_bytes(b'')
  capfd.readouterr()
  train.train(same_run.experiment(mini_data, tmp_path))
  assert 'last/5/state is damaged' in capfd.readouterr().err
  same_run.check(whole, tmp_path, same_run.config(mini_data), 4)


@pytest.mark.full
def test_each_log_line_is_there_once(whole, mini_data, tmp_path, monkeypatch):
  """A run killed and stopped at several points logs each line once."""
  c = same_run.config(mini_data)

  def kill_after(lines):
    with monkeypatch.context() as patch, pytest.raises(same_run.Killed):
      same_run.kill_after(patch, lines)
      train.train(small.experiment(c, tmp_path))

  kill_after(3)
  with monkeypatch.context() as patch:
    _stop_at(patch, 6)
    assert train.train(small.experiment(c, tmp_path)).status == 'stopped'
  kill_after(1)
  assert same_run.metrics(tmp_path)[-1]['split'] == 'val'
  kill_after(2)
  assert same_run.metrics(tmp_path)[-1]['split'] == 'test'
  train.train(small.experiment(c, tmp_path))
  same_run.check(whole, tmp_path, c, 4)


@pytest.mark.parametrize('content', ['{}', '[]', '3', 'null', '"a"', (
    '{"dtype": "int4", "data_fingerprint": "x"}'), '{"dtype": "float32"}'])
def test_a_foreign_environment_is_one_sentence(
    mini_data, tmp_path, content):
  (tmp_path / 'env.json').write_text(content)
  with pytest.raises(UserError, match='env.json .*dtype'):
    train.Trainer(same_run.experiment(mini_data, tmp_path))
