"""Tests that random keys depend on the example, call site and row only."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.nn import draws
from lra.nn.dropout import Dropout

KEY = jax.random.key(5)


class Model(nn.Module):
  """Model with two dropouts per example, and one on two rows per example."""

  @nn.compact
  def __call__(self, x, train):
    for _ in range(2):
      x = Dropout(0.5)(x, deterministic=not train)
    pairs = jnp.repeat(x, 2, axis=0)
    return Dropout(0.5, name='pairs')(pairs, deterministic=not train)


def _keys(place, x):
  table = draws.of_step(
      lambda **options: Model().apply({}, x, True, **options), KEY,
      jnp.asarray(place, jnp.int32))
  return {name: np.asarray(jax.random.key_data(site['rows']))
          for name, site in table.items()}


@pytest.mark.full
def test_sites_and_rows_have_keys_of_their_own():
  keys = _keys([0, 1, 2], np.ones((3, 4), np.float32))
  assert {name: len(found) for name, found in keys.items()} == {
      'Dropout_0': 3, 'Dropout_1': 3, 'pairs': 6}
  words = np.concatenate(list(keys.values()))
  assert len(np.unique(words, axis=0)) == len(words) == 12


@pytest.mark.full
def test_a_key_belongs_to_the_place_of_an_example():
  whole = _keys(range(8), np.ones((8, 4), np.float32))
  part = _keys([6, 3], np.ones((2, 4), np.float32))
  for name, found in part.items():
    each = whole[name].reshape(8, -1, 2)
    np.testing.assert_array_equal(found.reshape(2, -1, 2), each[[6, 3]])


@pytest.mark.full
@pytest.mark.parametrize('remat', (False, True))
def test_modules_draw_with_the_keys_that_they_are_given(remat):
  x = np.ones((3, 4000), np.float32)
  model = (nn.remat(Model, static_argnums=(2,)) if remat else Model)()
  apply = lambda variables, **options: model.apply(
      variables, x, True, **options)
  keys = draws.of_step(
      lambda **options: apply({}, **options), KEY, jnp.arange(3))
  got = apply({draws.KEYS: keys}, rngs={'dropout': jax.random.key(9)})
  again = apply({draws.KEYS: keys}, rngs={'dropout': jax.random.key(1)})
  np.testing.assert_array_equal(got, again)  # `rngs` has no effect
  # `Model` returns each row twice, and three dropouts of 0.5 keep an eighth.
  assert np.all(np.abs(np.mean(np.asarray(got) > 0, axis=1) - 1 / 8) < 0.03)


def test_a_module_used_alone_draws_by_its_stream():
  x = np.ones((3, 64), np.float32)
  drop = lambda key: Dropout(0.5).apply(
      {}, x, deterministic=False, rngs={'dropout': key})
  assert not np.array_equal(drop(KEY), drop(jax.random.key(6)))
  assert len(np.unique(np.asarray(drop(KEY)), axis=0)) == 3
  keys = kernels.row_keys(KEY, 3)
  assert kernels.row_keys(keys, 3) is keys


class Twice(nn.Module):
  """Calls one dropout module twice, and another once."""

  @nn.compact
  def __call__(self, x):
    drop, other = Dropout(0.5), Dropout(0.5)
    return drop(x, deterministic=False), drop(x, deterministic=False), other(
        x, deterministic=False)


def test_a_module_that_is_called_twice_does_not_draw_the_same_twice():
  x = np.ones((3, 200), np.float32)
  keys = draws.of_step(
      lambda **options: Twice().apply({}, x, **options), KEY, jnp.arange(3))
  assert list(keys) == ['Dropout_1']
  one, two, other = jax.jit(lambda keys: Twice().apply(
      {draws.KEYS: keys}, x, rngs={'dropout': jax.random.key(1)}))(keys)
  assert not np.array_equal(one, two) and not np.array_equal(one, other)
