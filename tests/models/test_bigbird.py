"""Compares BigBird with dense softmax under an explicit mask."""

import functools
import zlib

import numpy as np
import pytest

from lra.models.bigbird import Mixer
from lra.nn import patterns
from tests.helpers import mixer_oracle, sparse_oracle

SMALL = functools.partial(Mixer, num_heads=2, qkv_width=8, block_size=4,
                          global_blocks=1, random_blocks=2)


def tables(mixer, length):
  pattern, = mixer.patterns(length)
  return np.array(pattern.random_blocks)


@pytest.mark.parametrize('fields', [
    {}, mixer_oracle.full(
        {'global_blocks': 2, 'window_blocks': 5, 'random_blocks': 0}),
    mixer_oracle.full({'global_blocks': 0}),
    mixer_oracle.full({'block_size': 40})])
def test_equals_softmax_under_the_mask(fields):
  mixer = SMALL(**fields)
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  random = tables(mixer, 61) if mixer.random_blocks else np.zeros((2, 61, 0))
  reach = mixer.window_blocks // 2

  def sees(h, i, j):
    i, j = i // mixer.block_size, j // mixer.block_size
    few = mixer.global_blocks
    return abs(i - j) <= reach or min(i, j) < few or j in random[h, i]

  seen = [sparse_oracle.matrix(61, functools.partial(sees, h))
          for h in range(2)]
  mixer_oracle.check(mixer, sparse_oracle.mixer(*seen), x, mask)


def test_random_blocks_are_outside_window_and_globals():
  table_HxNxR = tables(SMALL(), 200)
  assert table_HxNxR.shape == (2, 50, 2)
  for n, rows in enumerate(table_HxNxR.swapaxes(0, 1)):
    for row in rows:
      assert len(set(row)) == 2 and all(1 <= m < 50 and abs(m - n) > 1
                                        for m in row)
  assert len(np.unique(table_HxNxR)) > 40


def test_few_blocks_leave_fewer_random_ones():
  rows = tables(SMALL(), 16)[0].tolist()  # blocks 0 (global) to 3
  assert [set(row) for row in rows] == [{2, 3}, {3, -1}, {-1}, {1, -1}]


def test_the_graph_of_a_layer_is_that_of_the_first_records():
  """Random blocks are seeded by the layer's name, as in the first records."""
  for layer in (0, 3):
    name = f'encoder/block_{layer}/mixer'
    want = patterns.random_blocks(
        50, 2, reach=1, num_global=1, heads=2,
        seed=(0, zlib.crc32(name.encode())))
    assert (tables(SMALL(layer=layer), 200) == np.array(want)).all()


def test_the_graph_of_cut_sequences_is_that_of_whole_ones():
  whole, cut = (tables(SMALL(full_length=200), n) for n in (200, 118))
  assert (whole == tables(SMALL(), 200)).all()
  want = whole[:, :30]  # 118 positions are 29.5 blocks of 4
  assert (cut == np.where(want < 30, want, -1)).all()
  assert (want >= 30).any() and (cut >= 0).any()
