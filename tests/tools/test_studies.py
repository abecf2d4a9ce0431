"""Tests of the measurements for the page of studies."""

import time

import pytest

from lra.share import quantised
from tools import studies


@pytest.mark.parametrize('length, width, heads', [(8, 16, 2), (20, 12, 4)])
def test_counts_are_those_of_the_formulas(length, width, heads):
  D, L = width, length
  dense, square = D * D + D, L * L * D
  want = {'transformer': (4 * dense, 4 * L * D * D + 2 * square, 6),
          'optimised': (3 * dense, 3 * L * D * D + 2 * square, 5),
          'efficient': (2 * dense, 2 * L * D * D + 2 * square, 4),
          'super': (2 * dense + L * L + L, 2 * L * D * D + 3 * square, 5)}
  for model, numbers in want.items():
    found = studies.counts(model, length, width, heads)
    assert tuple(found.values()) == numbers, model


def test_rounds_take_turns_and_count_the_seconds_of_each():
  order = []

  def call(name, seconds):
    def run():
      order.append(name)
      time.sleep(seconds)
    return run

  times = quantised.interleaved([call('a', 0), call('b', 0.01)], 0, least=3)
  assert order == ['a', 'b'] * 4  # the first round warms up
  assert [len(one) for one in times] == [3, 3] and min(times[1]) >= 0.01


def test_arms_are_compared_within_a_round(monkeypatch):
  """The machine is twice as slow in every second round."""
  times = {'dense': 1, 'chunked': 3, 'sliding_window': 0.5,
           'attention_sink': 0.5}

  def drawn_step(config):
    assert config.dtype == 'float32'
    return config.model.get('kernel', config.model.name), 2**20

  def interleaved(steps, seconds, least):
    assert steps == [*times] and (seconds, least) == (0, 2)
    return [[times[step], 2 * times[step]] for step in steps]

  monkeypatch.setattr(studies, 'drawn_step', drawn_step)
  monkeypatch.setattr(studies.quantised, 'interleaved', interleaved)
  rows = studies.center(studies.ARMS, ['text_mini'], 2)
  assert [(row['arm'], row['seconds per step'], row['time / full'])
          for row in rows] == [
              ('full', 1.5, 1), ('flash', 4.5, 3),
              ('sliding window', 0.75, 0.5), ('attention sinks', 0.75, 0.5)]
