"""Tests how the study of full, flash and local attention times its arms."""

import itertools

from lra.costs import center


def test_arms_take_turns_and_are_compared_within_a_round(monkeypatch):
  """The machine is twice as slow in every second round."""
  calls, clocks = [], {}

  def drawn_step(config):
    name = config.model.get('kernel', config.model.name)
    assert config.dtype == 'float32'
    clocks[name] = itertools.cycle([100, 1, 2])  # the first step warms up

    def step():
      calls.append(name)
      return next(clocks[name]) * {'dense': 1, 'chunked': 3}.get(name, 0.5)

    return step, 2**20

  monkeypatch.setattr(center, 'drawn_step', drawn_step)
  rows = center.measure(center.ARMS, ['text_mini'], 2)
  turn = ['dense', 'chunked', 'sliding_window', 'attention_sink']
  assert calls == turn * 3
  assert [(row['arm'], row['seconds per step'], row['time / full'])
          for row in rows] == [
              ('full', 1.5, 1), ('flash', 4.5, 3),
              ('sliding window', 0.75, 0.5), ('attention sinks', 0.75, 0.5)]
