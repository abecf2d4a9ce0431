"""Checks how compiled memory grows with L, and that no array is [L, L]."""

import pytest

from lra.board import catalogue
from lra.nn import partials
from tools import tables

ENTRIES = {e.name: e for e in catalogue.read()}
SUBQUADRATIC = [n for n, e in ENTRIES.items() if tables.limit(e) is not None]


@pytest.mark.full
@pytest.mark.parametrize('name', SUBQUADRATIC)
def test_memory_grows_as_the_model_says(name, monkeypatch):
  # Computes the heads one by one at both lengths. If only the longer one did
  # so, it would save memory and hide the growth.
  monkeypatch.setattr(partials, 'MANY_LOGITS', 0)
  half, whole = (tables.compile_gradient(tables.mixer(name), n)
                 for n in tables.LENGTHS)
  limit = tables.limit(ENTRIES[name])
  assert tables.temporary_bytes(whole) <= limit * tables.temporary_bytes(half)
  assert '4096,4096' not in half.as_text()


def test_what_counts_as_quadratic():
  assert set(ENTRIES) - set(SUBQUADRATIC) == {'super'}


def test_limits_by_exponent():
  """Memory that grows as L^p doubles to 2^p: 2 < 2.3 < 2^1.5 < 3.1 < 4."""
  assert tables.LIMITS == {1: 2.3, 1.5: 3.1, 2: None}
  for name, exponent in (('local', 1), ('sparse_fixed', 1.5), ('super', 2)):
    assert tables.limit(ENTRIES[name]) == tables.LIMITS[exponent]


def test_the_measure_sees_quadratic_memory():
  half, whole = (
      tables.compile_gradient(tables.mixer('transformer', kernel='dense'), n)
      for n in (512, 1024))
  assert tables.temporary_bytes(whole) > 3 * tables.temporary_bytes(half)
  assert '512,512' in half.as_text()
