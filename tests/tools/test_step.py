"""Tests the timing of training steps, in the loop and on random tokens."""

import types

import pytest

from lra.run import program
from lra.run.trainer import Trainer
from tests.helpers import small
from tools import step


@pytest.mark.full
def test_measure_says_what_ran_and_how_long_a_step_took(mini_data):
  config = small.config('local', 'listops_mini')
  config.data_dir = str(mini_data)
  got = step.measure(small.experiment(config), steps=2, rounds=2)
  expected = program.count_parameters(small.make(config, None).state_shape)
  assert {k: got[k] for k in expected} == expected
  assert (got['model'], got['task'], got['num_devices']) == (
      'local', 'listops_mini', 4)
  assert (got['steps'], got['rounds']) == (2, 2)
  assert got['loop_s_per_step'] > 0 and got['bare_s_per_step'] > 0
  assert got['overhead'] > -1 and got['peak_memory_bytes'] > 2**20


@pytest.mark.full
@pytest.mark.parametrize('seconds, rounds, made', [
    # 2 steps to warm up, 2 bare steps, then rounds of 2 looped and 2 bare ones.
    # 4 rounds of 1 s steps end at 20 s, 6 rounds of 0.75 s steps at 21 s.
    (1, None, (2, 4)), (0.75, None, (2, 6)),
    # Three rounds are made even if one step is longer than the time allows.
    (9, None, (1, 3)),
    (9, 4, (2, 4)), (1, 1, (2, 1))])
def test_measuring_ends_in_time_unless_rounds_are_asked_for(
    mini_data, monkeypatch, seconds, rounds, made):
  clock = 0.0
  compile_steps = Trainer.compile

  def compiled(self):
    compile_steps(self)
    step = self.train_step

    def train_step(*args):
      nonlocal clock
      clock += seconds
      return step(*args)

    self.train_step = train_step

  monkeypatch.setattr(Trainer, 'compile', compiled)
  monkeypatch.setattr(
      step, 'time', types.SimpleNamespace(perf_counter=lambda: clock))
  config = small.config('local', 'listops_mini')
  config.data_dir = str(mini_data)
  got = step.measure(small.experiment(config), steps=2, rounds=rounds)
  assert (got['steps'], got['rounds']) == made
  assert got['loop_s_per_step'] == got['bare_s_per_step'] == seconds


@pytest.mark.full
@pytest.mark.parametrize('model, task', [
    ('local', 'pathx'), ('transformer', 'retrieval')])
def test_a_step_is_timed_without_its_data(tmp_path, model, task):
  config = small.config(model, task)
  config.data_dir = str(tmp_path / 'none')
  got = step.measure_drawn(small.experiment(config), steps=2)
  made = small.make(config, None)
  counts = program.count_parameters(made.state_shape)
  assert {name: got[name] for name in counts} == counts
  assert (got['model'], got['task'], got['steps']) == (model, task, 2)
  assert got['length'] == made.objective.seq_len and got['drawn_tokens']
  assert got['bare_s_per_step'] > 0 and got['compile_seconds'] > 0
  assert got['step_bytes'] > 0 and not list(tmp_path.iterdir())


@pytest.mark.full
def test_no_step_is_begun_when_the_time_is_over(monkeypatch):
  monkeypatch.setattr(step, 'SECONDS', 0)
  got = step.measure_drawn(
      small.experiment(small.config('local', 'pathx')), steps=1000)
  assert got['steps'] == 1


def test_tokens_fill_the_length_and_labels_are_classes():
  made = small.make(small.config('local', 'retrieval'), None)
  batch = step.drawn_batch(made)
  task = made.objective.task
  assert {k: (v.shape, v.dtype) for k, v in batch.items()} == (
      made.shapes(
          made.config.train.batch_size // made.sizes.microbatch,
          made.sizes.microbatch, micro=True))
  assert 1 <= batch['tokens'].min() <= batch['tokens'].max() < task.vocab_size
  assert 0 <= batch['labels'].min() <= batch['labels'].max() < task.num_classes
  assert (batch['weights'] == 1).all()
