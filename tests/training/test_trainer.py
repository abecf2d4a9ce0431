"""The stopwatch of training time, by a clock that is set by hand."""

import types

from lra.training import trainer


def test_stretches_are_added_up_and_nothing_between_them(monkeypatch):
  now = 0.0
  monkeypatch.setattr(
      trainer, 'time', types.SimpleNamespace(perf_counter=lambda: now))
  made = trainer.Clock(5.0)
  made.stop()  # nothing is under way
  made.start()
  now = 2.0
  made.start()  # goes on
  now = 3.0
  made.stop()
  assert made.seconds == 8.0
  now = 100.0
  made.start()
  now = 101.0
  made.stop()
  assert made.seconds == 9.0
