"""Compiled memory of forward and backward: linear in L, never [L, L]."""

import pytest

from lra.costs.tables import tables
from lra.report import catalogue

SUBQUADRATIC = [
    e.name for e in catalogue.read() if tables.growth(e) != 'quadratic']


@pytest.mark.parametrize('name', SUBQUADRATIC)
def test_memory_grows_as_the_docstring_says(name):
  limit = tables.LIMITS[tables.growth(
      next(e for e in catalogue.read() if e.name == name))]
  half, whole = (tables.compile_gradient(tables.mixer(name), n)
                 for n in tables.LENGTHS)
  assert tables.temporary_bytes(whole) <= limit * tables.temporary_bytes(half)
  assert '4096,4096' not in half.as_text()


def test_what_counts_as_quadratic():
  quadratic = {e.name for e in catalogue.read()} - set(SUBQUADRATIC)
  assert quadratic == {'super'}


def test_the_measure_sees_quadratic_memory():
  half, whole = (
      tables.compile_gradient(tables.mixer('transformer', kernel='dense'), n)
      for n in (1024, 2048))
  assert tables.temporary_bytes(whole) > 3 * tables.temporary_bytes(half)
  assert '1024,1024' in half.as_text()
