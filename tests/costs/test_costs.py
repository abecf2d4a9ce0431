"""The table of step times, from two models at toy sizes."""

from lra.costs import tables
from lra.report import catalogue


def test_speed_has_a_row_per_model_and_a_ratio_per_length(monkeypatch):
  entries = [e for e in catalogue.read() if e.name in ('local', 'transformer')]
  monkeypatch.setattr(tables.catalogue, 'read', lambda: entries)
  lines = tables.speed(width=8, rounds=1, shapes=((2, 16), (1, 32)))
  header, _, *rows = lines[-1].splitlines()
  cells = [[c.strip() for c in row.strip('|').split('|')] for row in rows]
  assert [c.strip() for c in header.strip('|').split('|')] == [
      'model', 'cost', '2 x 16', 'ratio', '1 x 32', 'ratio']
  assert {c[0] for c in cells} == {'local', 'transformer'}
  base = next(c for c in cells if c[0] == 'transformer')
  assert base[3] == base[5] == '1.00'
  assert all(float(c[i]) > 0 for c in cells for i in (3, 5))
