"""Scores models on sequences longer than those of training."""

import dataclasses

import numpy as np
import pytest

import lra
from lra.core import tasks
from lra.core.errors import UserError
from lra.data import longer
from lra.run import scoring, train
from tests.helpers import small

pytestmark = pytest.mark.usefixtures('quick_runs')


def config(model='simpletron', task='parity,protocol=state', **train):
  return small.config(model, task, steps=4, eval_every=4, warmup_steps=1,
                      log_every=4, eval_batch_size=250, **train)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """Returns (folder, result) of a run without positions."""
  folder = tmp_path_factory.mktemp('run')
  task = dataclasses.replace(tasks.TASKS['parity'], longer=('64', '40-256'))
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(tasks.TASKS, 'parity', task)
    return folder, train.train(small.experiment(config(), folder))


def test_a_run_is_scored_at_every_length_of_its_task(run):
  _, result = run
  assert list(result.longer) == ['64', '40-256']
  assert all(scores.examples == 1000 for scores in result.longer.values())


def test_scores_are_those_of_the_model_applied_to_each_sequence(run):
  """Applies the restored model to single sequences, without any padding."""
  folder, result = run
  trained = lra.load(folder)
  model = trained.program.model
  split = longer.split('parity', '64')
  right = []
  variables = {'params': trained.params, **trained.constants}
  tokens = np.array([list(split.document(i)) for i in split.pairs[:, 0]]) + 1
  wanted = np.array([split.document(i)[-1] for i in split.pairs[:, 1]]) - 1
  for start in range(0, len(tokens), 500):
    logits = model.clone(encoder=model.encoder.clone(full_length=64)).apply(
        variables, tokens[start:start + 500].astype(np.int16), train=False)
    right += list(np.asarray(logits)[:, -1].argmax(-1)
                  == wanted[start:start + 500])
  # A tie of two logits may fall either way.
  assert np.mean(right) == pytest.approx(
      result.longer['64'].accuracy, abs=0.005)
  assert trained.evaluate_longer('64')['accuracy'] == pytest.approx(
      result.longer['64'].accuracy, abs=0.005)


def test_short_sequences_are_scored_by_the_program_of_training(run):
  trained = lra.load(run[0])
  assert scoring.at_length(trained.program, 20) is trained.program
  assert trained.evaluate_longer('10-20')['examples'] == 1000


@pytest.mark.parametrize('model, task, parameter', [
    ('retnet', 'parity', 'positions'),
    ('linformer', 'parity,protocol=state', 'mixer'),
    ('mlp_mixer', 'parity,protocol=state', 'mixer')])
def test_parameters_of_the_trained_length_are_named(model, task, parameter):
  made = small.make(config(model, task))
  with pytest.raises(UserError, match=parameter):
    scoring.at_length(made, 64)


def test_sinusoidal_positions_go_on():
  c = config(task='parity')
  c.encoder.positions = 'sinusoidal'
  made = small.make(c)
  assert scoring.at_length(made, 64).objective.seq_len == 64


@pytest.mark.full
def test_a_run_that_cannot_read_longer_sequences_ends_well(tmp_path):
  result = train.train(small.experiment(config('linformer'), tmp_path))
  assert (result.status, result.longer) == ('ok', {})
