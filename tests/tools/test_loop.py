"""Tests the timing of training steps, on a toy run."""

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
