"""Tests the warning about a run that learns nothing, and the speed."""

import math
import types

import pytest

from lra import data_prep
from lra.core import files
from lra.run import counters, train
from lra.run.counters import RunCounters, at_guessing
from tests.helpers import small

pytestmark = pytest.mark.usefixtures('quick_runs')
STEPS = 200


def _run(folder, capsys, rows):
  """Trains on rows of (expression, label); returns the result and stderr."""
  for split in ('train', 'val', 'test'):
    (folder / f'basic_{split}.tsv').write_text('Source\tTarget\n' + ''.join(
        f'{source}\t{label}\n' for source, label in rows))
  data_prep.prepare('listops', folder / 'data', folder)
  c = small.config(
      'simpletron', 'listops', steps=STEPS, eval_every=100, log_every=5,
      learning_rate=0.01, warmup_steps=0, weight_decay=0.0)
  c.optim.schedule, c.encoder.dropout = 'constant', 0.0
  c.seq_len = 4
  c.data_dir = str(folder / 'data')
  capsys.readouterr()
  train.train(small.experiment(c, folder / 'run'))
  printed = ''.join(capsys.readouterr())
  return files.read_json(folder / 'run' / 'result.json'), printed


def test_constant_inputs_cannot_be_learnt(tmp_path, capsys):
  """Cutting the inputs to 4 tokens removes the digit that is the label."""
  made, printed = _run(tmp_path, capsys, [
      (f'[MAX 0 0 0 0 {d} ]', d) for d in (0, 1) * 20])
  assert STEPS / 10 <= made['guessing_step'] <= STEPS / 4
  assert printed.count('that of guessing (0.693)') == 1


def test_a_run_that_learns_says_nothing(tmp_path, capsys):
  made, printed = _run(tmp_path, capsys, [
      (f'[MAX {d} {d} ]', d) for d in (0, 1) * 20])
  assert made['test']['accuracy'] == 1
  assert made['guessing_step'] is None and 'guessing' not in printed


def test_a_break_begins_the_tenth_again():
  counters = RunCounters()
  told = [counters.notes_guessing(guesses, step, 100)
          for step, guesses in enumerate(
              [True] * 9 + [False] + [True] * 30, start=1)]
  assert told.index(True) == 20 and sum(told) == 1
  assert counters.guessing_step == 21


@pytest.mark.parametrize('loss, entropy, is_guess', [
    (0.6931, math.log(2), True), (0.7, math.log(2), True),
    (0.68, math.log(2), False), (1.0, math.log(2), False),
    (0.6, 0.55, True), (0.5, 0.55, False), (0.69, None, False),
    (0.69, 0.0, False)])
def test_losses_of_guessing(loss, entropy, is_guess):
  assert at_guessing(loss, entropy, 2) == is_guess


@pytest.mark.parametrize('task, tokens', [
    ('listops', 4 * 24), ('retrieval', 4 * 2 * 24)])
def test_rates_closed_form(task, tokens):
  """Ten steps in five seconds; both documents of a pair are read."""
  p = small.make(small.config('simpletron', task))
  got = RunCounters(timed_steps=10, train_seconds=5.0).result_fields(
      p, 'ok', 10)
  assert got['steps_per_s'] == pytest.approx(2)
  assert got['tokens_per_s'] == pytest.approx(2 * tokens)


def test_stretches_are_added_up_and_nothing_between_them(monkeypatch):
  """The timer adds up its intervals only; a fake clock sets the time."""
  now = 0.0
  monkeypatch.setattr(
      counters, 'time', types.SimpleNamespace(perf_counter=lambda: now))
  made = RunCounters(train_seconds=5.0)
  made.stop_clock()  # the clock is not running
  made.start_clock()
  now = 2.0
  made.start_clock()  # already running
  now = 3.0
  made.stop_clock()
  assert made.train_seconds == 8.0
  now = 100.0
  made.start_clock()
  now = 101.0
  made.stop_clock()
  assert made.train_seconds == 9.0
