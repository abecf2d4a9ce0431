"""Tests of signals in a process that trains several runs."""

from lra.core import signals, terminal


def test_each_run_hears_that_the_terminal_was_closed(monkeypatch):
  first, second = terminal.StopRequest(None), terminal.StopRequest(None)
  assert not first.checkpoint()
  monkeypatch.setattr(signals, 'hang_ups', lambda: 1)
  assert first.checkpoint() and second.checkpoint()
  assert not first.checkpoint() and not second.checkpoint()
