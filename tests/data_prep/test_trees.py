"""Checks random expressions by reading them recursively."""

import statistics

import numpy as np
import pytest

from lra.data_prep import listops, trees

LRA = trees.Process()


def parse(words):
  """Removes the leading expression; returns its value, depth and arities."""
  head = words.pop(0)
  if head.isdigit():
    return int(head), 1, []
  values, depths, arities = [], [], []
  while words[0] != ']':
    value, depth, below = parse(words)
    values.append(value)
    depths.append(depth)
    arities += below
  words.pop(0)
  apply = {'[MIN': min, '[MAX': max, '[SM': lambda v: sum(v) % 10,
           '[MED': lambda v: int(statistics.median(v))}[head]
  return apply(values), 1 + max(depths), [*arities, len(values)]


def expressions(drawn):
  for start, stop in zip(drawn.offsets, drawn.offsets[1:], strict=False):
    yield drawn.tokens[start:stop]


@pytest.fixture(scope='module')
def sample():
  """Draws about 6,500 expressions of LRA's random process."""
  return [trees.draw(LRA, (7, i), 20_000) for i in range(4)]


@pytest.mark.full
def test_values_depths_and_arities_by_recursion(sample):
  arities, depths = [], []
  for tokens, value in zip(expressions(sample[0]), sample[0].values[:300],
                           strict=False):
    words = listops.decode(tokens).split()
    expected, depth, below = parse(words)
    assert not words
    assert value == expected == listops.evaluate(tokens)
    arities += below
    depths.append(depth)
  assert set(arities) == set(range(2, 11))
  assert max(depths) == 10
  assert abs(np.mean(arities) - 6) < 0.1


def test_statistics(sample):
  lengths = np.concatenate([np.diff(s.offsets) for s in sample])
  values = np.concatenate([s.values for s in sample])
  first = np.concatenate([s.tokens[s.offsets[:-1]] for s in sample])
  assert len(values) > 6400
  assert abs(len(values) / sum(s.draws for s in sample) - 0.082) < 0.003
  assert lengths.min() > 500 and lengths.max() < 2000
  assert abs(lengths.mean() - 1037) < 15
  assert abs(np.median(lengths) - 961) < 20
  share = np.bincount(values, minlength=10) / len(values)
  assert np.all(abs(share[[0, 9]] - 0.17) < 0.015)
  assert np.all((share[1:9] > 0.065) & (share[1:9] < 0.1))
  table = np.zeros((15, 10))
  np.add.at(table, (first, values), 1)
  assert abs(table.max(1).sum() / len(values) - 0.363) < 0.015
  assert np.all(abs(table.sum(1)[10:14] / len(values) - 0.25) < 0.015)


def test_depends_on_the_seed_only(sample):
  again = trees.draw(LRA, (7, 3), 20_000)
  assert np.array_equal(again.tokens, sample[3].tokens)
  assert not np.array_equal(sample[3].tokens[:500], sample[2].tokens[:500])


def test_small_process_against_enumeration():
  """At depth 2 with 2 arguments, every [op d d] is equally likely."""
  drawn = trees.draw(trees.Process(2, 2, 3, 5), 0, 200_000)
  assert set(np.diff(drawn.offsets)) == {4}
  whole = drawn.tokens.reshape(-1, 4)
  assert np.all(whole[:, 3] == trees.CLOSE)
  assert abs(len(whole) / drawn.draws - 0.25) < 0.005
  cells = np.zeros((4, 10, 10))
  np.add.at(cells, (whole[:, 0] - 10, whole[:, 1], whole[:, 2]), 1)
  assert cells.min() > 0.5 * cells.mean() and cells.max() < 1.6 * cells.mean()


def test_nothing_of_an_admitted_length():
  drawn = trees.draw(trees.Process(1, 2, 1, 3), 0, 50)
  assert drawn.tokens.size == 0
  assert drawn.offsets.tolist() == [0]
  assert drawn.values.size == 0
