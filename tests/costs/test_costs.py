"""The table of step times."""

import pytest

from lra.costs import tables
from lra.report import catalogue


@pytest.fixture
def two_models(monkeypatch):
  entries = [e for e in catalogue.read() if e.name in ('local', 'transformer')]
  monkeypatch.setattr(tables.catalogue, 'read', lambda: entries)


def test_speed_has_a_row_per_model_and_a_ratio_per_length(
    two_models, monkeypatch):
  """Medians of the rounds: local takes 1, transformer 2, at L 32 half."""

  def training_step(name, batch, length, width):
    assert (batch, length) in ((2, 16), (1, 32)) and width == 8
    seconds = 16 / length * {'local': 1, 'transformer': 2}[name]
    warm_up_and_rounds = iter([100, seconds, 3 * seconds, seconds])
    return lambda: next(warm_up_and_rounds)

  monkeypatch.setattr(tables, '_training_step', training_step)
  lines = tables.speed(width=8, rounds=3, shapes=((2, 16), (1, 32)))
  header, _, *rows = lines[-1].splitlines()
  cells = [[c.strip() for c in row.strip('|').split('|')] for row in rows]
  assert [c.strip() for c in header.strip('|').split('|')] == [
      'model', 'cost', '2 x 16', 'ratio', '1 x 32', 'ratio']
  assert [(c[0], *map(float, c[2:])) for c in cells] == [
      ('local', 1, 0.5, 0.5, 0.5), ('transformer', 2, 1, 1, 1)]


@pytest.mark.full
def test_a_training_step_is_timed():
  assert tables._training_step('local', 2, 16, 8)() > 0
