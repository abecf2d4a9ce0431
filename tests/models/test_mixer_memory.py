"""Compiled memory of forward and backward: linear in L, never [L, L]."""

import pytest

from lra import catalogue, costs

SUBQUADRATIC = [
    e.name for e in catalogue.read() if costs.growth(e) != 'quadratic']


@pytest.mark.parametrize('name', SUBQUADRATIC)
def test_memory_grows_as_the_docstring_says(name):
  limit = costs.LIMITS[costs.growth(
      next(e for e in catalogue.read() if e.name == name))]
  half, whole = (costs.compile_gradient(costs.mixer(name), n)
                 for n in costs.LENGTHS)
  assert costs.temporary_bytes(whole) <= limit * costs.temporary_bytes(half)
  assert '4096,4096' not in half.as_text()


def test_what_counts_as_quadratic():
  quadratic = {e.name for e in catalogue.read()} - set(SUBQUADRATIC)
  assert quadratic == {'super'}


def test_the_measure_sees_quadratic_memory():
  half, whole = (
      costs.compile_gradient(costs.mixer('transformer', kernel='dense'), n)
      for n in (1024, 2048))
  assert costs.temporary_bytes(whole) > 3 * costs.temporary_bytes(half)
  assert '1024,1024' in half.as_text()
