"""Compares seeds trained together in one process with seeds trained alone."""

import json
import types

import numpy as np
import pytest

from lra.data import prepared
from lra.run import program, train
from tests.helpers import small

pytestmark = pytest.mark.usefixtures('quick_runs')


def _config(mini_data, seed, **options):
  c = small.config('transformer', 'listops_mini', steps=10, eval_every=5,
                   log_every=5, batch_size=8, microbatch_size=4,
                   eval_batch_size=200, **options)
  c.data_dir, c.seq_len, c.seed = str(mini_data), 0, seed
  c.encoder.dropout = 0.1  # depends on the seed too
  return c


def _lines(folder):
  """Returns the log without measured times and speeds."""
  return [{k: v for k, v in json.loads(line).items()
           if k not in ('seconds', 'examples_per_s')}
          for line in (folder / 'metrics.jsonl').read_text().splitlines()]


@pytest.fixture(scope='module')
def alone(mini_data, tmp_path_factory):
  """Returns folder and result of seed 1, trained alone."""
  folder = tmp_path_factory.mktemp('alone')
  return folder, train.train(small.experiment(_config(mini_data, 1), folder))


@pytest.mark.parametrize('at_once', [
    pytest.param(1, marks=pytest.mark.full), 3])
def test_each_seed_is_what_it_is_alone(mini_data, tmp_path, monkeypatch,
                                       alone, at_once):
  compiled = []
  compile_train = program.Program.compile_train
  monkeypatch.setattr(
      program.Program, 'compile_train',
      lambda self: compiled.append(self) or compile_train(self))
  runs = [small.experiment(_config(mini_data, seed), tmp_path / f's{seed}')
          for seed in range(3)]
  results = {run.folder.name: result for run, result in
             train.train_many(runs, at_once=at_once)}
  assert len(compiled) == 1
  assert [results[f's{seed}'].seed for seed in range(3)] == [0, 1, 2]
  assert {r.runs_at_once for r in results.values()} == {at_once}
  seconds, = {r.compile_seconds for r in results.values()}
  assert seconds > 0.01  # seconds of the shared compilation
  folder, result = alone
  assert _lines(tmp_path / 's1') == _lines(folder)
  assert _lines(tmp_path / 's1') != _lines(tmp_path / 's2')
  assert np.array_equal(
      results['s1'].test.confusion, result.test.confusion)


@pytest.mark.full
def test_rates_share_a_compiled_step_and_widths_have_their_own(
    mini_data, tmp_path, monkeypatch, alone):
  compiled = []
  compile_train = program.Program.compile_train
  monkeypatch.setattr(
      program.Program, 'compile_train',
      lambda self: compiled.append(self) or compile_train(self))
  configs = {
      'plain': _config(mini_data, 1),
      'slow': _config(mini_data, 1, learning_rate=1e-3, weight_decay=0.0),
      'wide': _config(mini_data, 1)}
  configs['wide'].encoder.mlp_width = 32
  results = {run.folder.name: result for run, result in
             train.train_many(
                 [small.experiment(c, tmp_path / name)
                  for name, c in configs.items()],
                 at_once=2)}
  assert len(compiled) == 2
  assert _lines(tmp_path / 'plain') == _lines(alone[0])
  for name in ('slow', 'wide'):
    train.train(small.experiment(configs[name], tmp_path / f'{name}_alone'))
    assert _lines(tmp_path / name) == _lines(tmp_path / f'{name}_alone')
    assert results[name].config == json.loads(
        json.dumps(configs[name].to_dict()))


@pytest.mark.parametrize('at_once', [
    pytest.param(1, marks=pytest.mark.full), 3])
def test_a_bug_is_told_as_one_with_its_traceback(
    mini_data, tmp_path, monkeypatch, capsys, at_once):
  """A bug shows its traceback even if another run had a user error before."""
  init = program.Program.init

  def broken(self):
    if self.config.seed == 1:
      raise TypeError('iter() returned non-iterator')
    return init(self)

  monkeypatch.setattr(program.Program, 'init', broken)
  runs = [small.experiment(_config(mini_data, seed), tmp_path / f's{seed}')
          for seed in range(3)]
  (tmp_path / 's0').mkdir()
  (tmp_path / 's0/env.json').write_text('damaged')
  done = []
  with pytest.raises(TypeError, match='non-iterator'):
    for _, result in train.train_many(runs, at_once=at_once):
      done.append(result.seed)
  assert done == [2]
  said = capsys.readouterr().err
  assert f'{tmp_path}/s1: internal error' in said
  assert said.count('Traceback') == 1 and 'in broken' in said


@pytest.mark.full
@pytest.mark.parametrize('at_once', [1, 2])
def test_each_task_is_trained_on_its_own_data(tmp_path, at_once):
  runs = []
  for task in ('permutations_3', 'permutations_5'):
    c = small.config('transformer', task, steps=2, batch_size=4,
                     microbatch_size=4, eval_batch_size=512)
    runs.append(small.experiment(c, tmp_path / task))
  of = {run.task.name: result.data_fingerprint for run, result in
        train.train_many(runs, at_once=at_once)}
  assert of == {task: prepared.load(task).fingerprint for task in of}
  assert len(set(of.values())) == 2


def test_each_run_gets_the_minutes_that_are_left(tmp_path, monkeypatch):
  """The first run takes one of two minutes; the second gets the other."""
  now, given = [0.0], []
  monkeypatch.setattr(
      train, 'time', types.SimpleNamespace(monotonic=lambda: now[0]))

  def run(experiment, max_minutes, **_):
    given.append(max_minutes)
    now[0] += 60

  monkeypatch.setattr(train, 'train', run)
  runs = [small.experiment(_config(tmp_path, seed), tmp_path / f's{seed}')
          for seed in range(3)]
  assert len(list(train.train_many(
      runs, at_once=1, max_minutes=2))) == 3
  assert given == [2.0, 1.0]
