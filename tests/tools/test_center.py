"""Tests how the study of full, flash and local attention compares its arms."""

from tools import center


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

  monkeypatch.setattr(center, 'drawn_step', drawn_step)
  monkeypatch.setattr(center.studies, 'interleaved', interleaved)
  rows = center.measure(center.ARMS, ['text_mini'], 2)
  assert [(row['arm'], row['seconds per step'], row['time / full'])
          for row in rows] == [
              ('full', 1.5, 1), ('flash', 4.5, 3),
              ('sliding window', 0.75, 0.5), ('attention sinks', 0.75, 0.5)]
