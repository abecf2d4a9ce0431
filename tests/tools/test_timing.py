"""Tests the thread pool: order of results, context, errors."""

import contextvars
import threading
import time

import pytest

from tools import timing

_seen = contextvars.ContextVar('seen', default=None)


def test_they_run_beside_each_other_and_come_as_they_end(monkeypatch):
  monkeypatch.setattr(
      timing.os, 'sched_getaffinity', lambda _: {0, 1}, raising=False)
  taken = threading.Event()

  def wait(x):
    if x == 'first':
      assert taken.wait(60)
    return x

  found = timing.finished(wait, ['first', 'second'])
  assert next(found) == ('second', 'second')
  taken.set()
  assert list(found) == [('first', 'first')]


def test_they_see_the_context_of_the_caller():
  token = _seen.set('here')
  found = dict(timing.finished(lambda _: _seen.get(), [1, 2, 3]))
  _seen.reset(token)
  assert set(found.values()) == {'here'}


def test_what_fails_is_raised_and_no_more_are_begun(monkeypatch):
  monkeypatch.setattr(
      timing.os, 'sched_getaffinity', lambda _: {0}, raising=False)
  begun = []

  def broken(x):
    begun.append(x)
    if x == 0:
      raise ValueError(x)
    time.sleep(0.05)

  with pytest.raises(ValueError, match='0'):
    list(timing.finished(broken, list(range(1000))))
  assert len(begun) < 500
