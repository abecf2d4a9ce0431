"""Tests the speed that a result records."""

import types

import pytest

from lra.run import counters
from lra.run.counters import RunCounters
from tests.helpers import small


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
