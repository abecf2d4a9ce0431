"""Tests that random words of each row equal those of `jax.random`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from jax.sharding import AxisType

from lra.kernels import axes, dispatch, random_bits

SHAPES = ((7,), (1001,), (3, 5), (2, 4, 9), (0, 3))


def _jax_draws(key, count, shape):
  return np.stack(
    [jax.random.bits(row, shape, jnp.uint32) for row in axes.keys(key, count)]
  )


def _is_loop(draw, *args):
  """Returns whether the words come from a loop over rows, not from JAX."""
  text = str(jax.make_jaxpr(draw)(*args))
  assert ('scan[' in text) != ('random_bits[' in text)
  return 'scan[' in text


@pytest.mark.every(3)
@pytest.mark.parametrize('shape', SHAPES)
@pytest.mark.parametrize('seed, count', [(0, 3), (2**31 + 5, 1)])
def test_words_are_those_of_jax(shape, seed, count):
  key = jax.random.key(seed)
  draw = jax.jit(lambda key: random_bits.draw(key, count, shape))
  assert _is_loop(draw, key)
  np.testing.assert_array_equal(draw(key), _jax_draws(key, count, shape))


@pytest.mark.parametrize('rate', (0.0, 0.1, 0.5, 0.9, 1.0))
def test_a_comparison_of_uniform_words_is_bernoulli(rate):
  key, shape = jax.random.key(3), (2, 50, 31)
  found = random_bits.draw(
    key, 2, shape, lambda words: random_bits.uniform(words) < rate
  )
  want = [jax.random.bernoulli(row, rate, shape) for row in axes.keys(key, 2)]
  np.testing.assert_array_equal(found, np.stack(want))


def test_an_accelerator_draws_by_jax():
  key = jax.random.key(0)
  for platform in ('gpu', 'tpu', 'cpu'):
    with dispatch.target(platform):
      draw = lambda key: random_bits.draw(key, 3, (4, 5))  # noqa: E731
      assert _is_loop(draw, key) == (platform == 'cpu')


def test_other_generators_and_raw_keys_draw_by_jax():
  with jax.threefry_partitionable(False):
    key = jax.random.key(1)
    np.testing.assert_array_equal(
      random_bits.draw(key, 2, (5, 3)), _jax_draws(key, 2, (5, 3))
    )
  for key in (jax.random.key(1, impl='rbg'), jax.random.PRNGKey(1)):
    np.testing.assert_array_equal(
      random_bits.draw(key, 2, (5, 3)).shape, (2, 5, 3)
    )
    assert not _is_loop(lambda key: random_bits.draw(key, 2, (5, 3)), key)


@pytest.mark.parametrize('axis', ('data', 'sequence'))
def test_devices_that_split_a_batch_draw_what_one_draws(axis):
  key = jax.random.key(6)
  mesh = jax.make_mesh((2,), (axis,), axis_types=(AxisType.Auto,))
  draw = lambda key: random_bits.draw(key, 4, (6, 8))  # noqa: E731
  with jax.set_mesh(mesh):
    assert not _is_loop(draw, key)
    words = jax.jit(draw)(key)
  np.testing.assert_array_equal(words, draw(key))


def _kept_by_threefry(key, count, shape, rate):
  """Computes `kept` with JAX's threefry: one counter for each weight."""
  heads, queries, keys = np.indices(shape, np.uint32).reshape(3, -1)
  counters = np.concatenate([heads * 2**20 + queries, keys])
  found = []
  for row in axes.keys(key, count):
    out = threefry_2x32(jax.random.key_data(row), jnp.asarray(counters))
    high, low = np.split(np.asarray(out), 2)
    uniform = (high ^ low) // 2**9 / 2**23
    found.append((uniform < 1 - rate).reshape(shape))
  return np.stack(found)


@pytest.mark.parametrize('platform', ('cpu', 'gpu'))
def test_weights_are_kept_by_head_query_and_key(platform):
  """Dropout depends only on (head, query, key), not on tile or length."""
  key = jax.random.key(9)
  want = _kept_by_threefry(key, 3, (2, 30, 50), 0.4)

  @jax.jit
  def tile(row, col):
    with dispatch.target(platform):
      return random_bits.kept(key, 3, (2, 7, 20), 0.4, (row, col))

  for row, col in ((0, 0), (23, 30), (7, 20)):
    np.testing.assert_array_equal(
      tile(row, col), want[:, :, row : row + 7, col : col + 20]
    )


def test_keys_of_rows_are_taken_as_they_are():
  keys = axes.keys(jax.random.key(4), 3)
  for draw in (
    lambda key: random_bits.draw(key, 3, (5, 6)),
    lambda key: random_bits.kept(key, 3, (2, 5, 6), 0.5),
  ):
    np.testing.assert_array_equal(draw(keys), draw(jax.random.key(4)))
