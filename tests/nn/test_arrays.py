"""Tests the numbering of tokens if padding stands between them."""

import numpy as np

from lra.nn import arrays

MASK = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1],
                 [0, 0, 0, 1, 1]], bool)


def test_tokens_come_first_in_their_order():
  order, _, count = arrays.tokens_first(MASK)
  np.testing.assert_array_equal(
      order, [[0, 2, 3, 1, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4],
              [3, 4, 0, 1, 2]])
  np.testing.assert_array_equal(count, [3, 0, 5, 2])


def test_taking_by_place_undoes_taking_by_order():
  order, place, _ = arrays.tokens_first(MASK)
  x = np.arange(40.0, dtype=np.float32).reshape(4, 5, 2)
  np.testing.assert_array_equal(
      arrays.take(arrays.take(x, order), place), x)


def test_token_before():
  """Padding is skipped; a token without one before it gets 0."""
  x = np.arange(1.0, 21.0, dtype=np.float32).reshape(4, 5)
  np.testing.assert_array_equal(arrays.token_before(x, MASK), [
      [0, 1, 1, 3, 4], [0] * 5, [0, 11, 12, 13, 14], [0, 0, 0, 0, 19]])
  np.testing.assert_array_equal(arrays.token_before(x, MASK, reverse=True), [
      [3, 3, 4, 0, 0], [0] * 5, [12, 13, 14, 15, 0], [19, 19, 19, 20, 0]])
  pairs = np.stack([x, -x], -1)
  np.testing.assert_array_equal(
      arrays.token_before(pairs, MASK)[..., 1], -arrays.token_before(x, MASK))
