"""Tests of the measurements for the page of studies."""

import time

import pytest

from lra.many import runs
from lra.share import quantised
from tests.helpers.paths import ROOT
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
  times = {'dense': 1, 'auto': 3, 'sliding_window': 0.5, 'attention_sink': 0.5}

  def drawn_steps(config):
    assert config.dtype == 'float32'
    name = config.model.get('kernel', config.model.name)
    return (name, 1), (name, 0.1), 2**20, 7

  def interleaved(calls, seconds, least):
    assert (seconds, least) == (0, 2)
    return [[share * times[name], 2 * share * times[name]]
            for name, share in calls]

  monkeypatch.chdir(ROOT)
  monkeypatch.setattr(studies, 'drawn_steps', drawn_steps)
  monkeypatch.setattr(studies.quantised, 'interleaved', interleaved)
  rows = [row for row in studies.arms('center', 2)
          if row['task'] == 'imdb_words_200']
  assert [(row['arm'], row['seconds per step'], row['time / full'],
           row['seconds per evaluated batch']) for row in rows] == [
      ('full', 1.5, 1, 0.15), ('flash', 4.5, 3, 0.45),
      ('sliding window', 0.75, 0.5, 0.075),
      ('attention sinks', 0.75, 0.5, 0.075)]


@pytest.mark.parametrize('name', studies.TIMED)
def test_the_arm_of_the_ratio_is_in_each_task(name, monkeypatch):
  monkeypatch.chdir(ROOT)
  found = runs.read(name)
  tasks = {run.config.partition(':')[2] for run in found}
  assert tasks == {run.config.partition(':')[2] for run in found
                   if run.arm == studies.TIMED[name]}
