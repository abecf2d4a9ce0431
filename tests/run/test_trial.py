"""Tests of --trial: what it runs, what it leaves, and its estimate."""

import tempfile
import types

import pytest

from lra.core import machine
from lra.data import prepared
from lra.run import program, scoring, trial
from lra.run.trainer import Trainer
from tests.helpers import same_run

pytestmark = pytest.mark.usefixtures('quick_runs')


def _experiment(data, folder, **fields):
  run = same_run.experiment(data, folder)
  run.config.train.update({'steps': 45, 'eval_every': 20, **fields})
  return run


def _timed(monkeypatch, step_seconds, batch_seconds):
  """Simulates the times of steps and of batches; returns the split sizes read.
  """
  clock, scored = [0.0], []
  update, evaluate = Trainer.update, scoring.evaluate

  def slow_update(self, state, batch):
    clock[0] += step_seconds
    return update(self, state, batch)

  def slow_evaluate(run, parameters, split, stop):
    scored.append((split, len(run.data.splits[split])))
    before, scores = run.counters.eval_seconds, evaluate(
        run, parameters, split, stop)
    batches = -(-scored[-1][1] // run.program.sizes.eval_batch)
    run.counters.eval_seconds = before + batches * batch_seconds
    return scores

  monkeypatch.setattr(Trainer, 'update', slow_update)
  monkeypatch.setattr(scoring, 'evaluate', slow_evaluate)
  monkeypatch.setattr(
      trial, 'time', types.SimpleNamespace(perf_counter=lambda: clock[0]))
  return scored


@pytest.mark.parametrize('step_seconds, tried', [
    (12, 3), *(pytest.param(*case, marks=pytest.mark.full)
              for case in ((2, 10), (90, 1)))])
def test_the_estimate_is_the_time_of_all_that_a_run_does(
    mini_data, tmp_path, monkeypatch, step_seconds, tried):
  """A run of 45 steps validates at steps 20, 40 and 45."""
  scored = _timed(monkeypatch, step_seconds, 3)
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  run = _experiment(mini_data, tmp_path / 'run')
  made = trial.measure(run)
  assert not list(tmp_path.iterdir())
  assert scored == [('val', 400)]  # two batches of 200
  assert made.tried == tried
  sizes = {name: len(split) for name, split in
           prepared.load('listops_mini', mini_data).splits.items()}
  batches = 3 * -(-sizes['val'] // 200) + -(-sizes['test'] // 200)
  assert made.seconds == pytest.approx(
      made.compile_seconds + 45 * step_seconds + 3 * batches)
  assert made.peak_memory_bytes > 2**20 and f'{tried} of' not in str(made)


def test_a_long_step_is_estimated_from_few_examples(
    mini_data, tmp_path, monkeypatch, capfd):
  """By the guess, a step of 3 examples is short enough, one of 4 is not."""
  run = _experiment(mini_data, tmp_path / 'run')
  t = run.config.train
  made = program.make(run)
  each = 6 * run.length * program.count_parameters(made.state_shape)[
      'num_params'] / (trial._SPEED * machine.cpu_count())
  monkeypatch.setattr(trial, '_LONGEST', 3.5 * each)
  assert t.batch_size > 3 and made.sizes.microbatch > 3
  scored = _timed(monkeypatch, 2, 3)
  found = trial.measure(run)
  assert scored == [('val', 6)]  # two batches of three examples
  assert found.step_seconds == pytest.approx(2 * t.batch_size / 3)
  assert found.batch_seconds == pytest.approx(3 * 200 / 3)
  assert (found.val_batches, found.tried) == (
      -(-len(prepared.load('listops_mini', mini_data).splits['val']) // 200),
      10)
  assert f'3 of the {t.batch_size} examples of a step' in str(found)
  assert 'the trial takes about' in capfd.readouterr().err
  assert run.config.train.batch_size == t.batch_size > 3


@pytest.mark.parametrize('waiting, busy', [(0.5, True), (0.1, False)])
def test_an_estimate_on_a_busy_machine_tells_so(waiting, busy):
  made = trial.Trial(1, 9, 1.0, 1.0, 1, 1, 1, 1.0, 2**30, 'cpu', waiting)
  assert ('50%' in str(made)) == busy


@pytest.mark.full
def test_the_batches_of_the_trial_have_long_and_short_examples(
    mini_data, tmp_path, monkeypatch):
  """Examples are evaluated from the shortest to the longest on a CPU."""
  taken = []
  chosen = prepared.chosen
  monkeypatch.setattr(prepared, 'chosen', lambda split, indices: taken.append(
      prepared.lengths(split)[indices]) or chosen(split, indices))
  trial.measure(_experiment(mini_data, tmp_path / 'run', lengths=(12,)))
  every = prepared.lengths(
      prepared.load('listops_mini', mini_data).splits['val'])
  assert taken[0].mean() == pytest.approx(every.mean(), rel=0.1)
