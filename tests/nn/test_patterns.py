"""Tests attention patterns as boolean matrices."""

import numpy as np
import pytest

from lra.core.errors import UserError
from lra.nn import patterns
from lra.nn.patterns import KINDS, Pattern
from tests.helpers import sparse_oracle

RANDOM = (((3,), (-1,), (0,), (1,)),)  # block n sees block RANDOM[0][n]


def sees(p, i, j):
  """Returns whether query `i` sees key `j` by the definition of `p`."""
  if i < p.global_queries or j < p.global_keys:
    return True
  if p.summary and j % p.summary[0] >= p.summary[0] - p.summary[1]:
    return True
  if p.random_blocks and j // p.block == p.random_blocks[0][i // p.block][0]:
    return True
  place_i, place_j = i // p.dilation, j // p.dilation
  return (i % p.dilation == j % p.dilation and
          place_j // p.block - place_i // p.block in p.offsets and
          (p.radius is None or abs(place_i - place_j) <= p.radius) and
          (not p.causal or j <= i))


@pytest.mark.parametrize('pattern', [
    Pattern(block=7),
    Pattern(block=4, offsets=(-1, 0, 1), radius=3),
    Pattern(block=4, offsets=(-2, 1), dilation=3, global_keys=2),
    Pattern(offsets=(), summary=(5, 2), global_queries=1),
    Pattern(block=10, random_blocks=RANDOM, global_keys=1, global_queries=2),
    patterns.sliding_window(37),
    patterns.sliding_window(5, dilation=2),
    patterns.sliding_window(5, causal=True, dilation=2),
    Pattern(block=6, offsets=(-1, 0, 1), causal=True, global_keys=2),
])
def test_mask_is_the_definition(pattern):
  want = sparse_oracle.matrix(40, lambda i, j: sees(pattern, i, j))
  np.testing.assert_array_equal(pattern.mask(40), want)


@pytest.mark.parametrize('tables', [
    (((1,), (2,), (0,)), ((2,), (0,), (1,))), (((2,), (0,), (1,)),)])
def test_heads_have_random_blocks_of_their_own_or_share_them(tables):
  pattern = Pattern(block=4, random_blocks=tables)
  for head in (0, 1):
    of_head = tables[head] if len(tables) > 1 else tables[0]
    want = sparse_oracle.matrix(12, lambda i, j, of_head=of_head: (
        j // 4 in (i // 4, of_head[i // 4][0])))
    np.testing.assert_array_equal(pattern.mask(12, head), want)


def test_sliding_window_is_exactly_the_radius():
  for radius in (0, 1, 15, 16, 17, 40):
    want = sparse_oracle.matrix(60, lambda i, j, r=radius: abs(i - j) <= r)
    np.testing.assert_array_equal(patterns.sliding_window(radius).mask(60),
                                  want)


def test_kinds_are_told_apart():
  pattern = Pattern(block=10, random_blocks=RANDOM, global_keys=1,
                    global_queries=1, summary=(10, 1))
  kinds = pattern.kinds(40)
  assert [KINDS[kinds[i, j]] for i, j in (
      (0, 39), (39, 0), (1, 2), (1, 9), (11, 19), (1, 35), (1, 25))] == [
          'global', 'global', 'window', 'summary', 'summary', 'random', 'none']


@pytest.mark.parametrize('fields', [
    {'block': 0}, {'dilation': 0}, {'summary': (5, 0)}, {'offsets': ()}])
def test_impossible_patterns_are_refused(fields):
  with pytest.raises(UserError, match='pattern'):
    Pattern(**fields)
