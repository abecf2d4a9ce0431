"""Tests the gradients of embedding tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.nn.embedding import SMALL, Embedding

# On a GPU: partly filled blocks of rows, several blocks of columns.
WIDTHS = {'cpu': 4, 'gpu': 72, 'tpu': 4}


@pytest.mark.every(5)
@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize('size', [5, SMALL, SMALL + 1])
@pytest.mark.parametrize('platform', ['cpu', 'gpu', 'tpu'])
def test_each_id_gets_the_sum_over_its_tokens(platform, size, dtype):
  """Compares gradients with float64, also for padding and an unused id."""
  rng = np.random.default_rng(0)
  ids = rng.integers(0, size - 1, (3, 50)) * (rng.random((3, 50)) < 0.7)
  width = WIDTHS[platform]
  dy = np.asarray(
      jnp.asarray(rng.normal(size=(3, 50, width)), dtype), np.float64)
  module = Embedding(size, width, dtype=dtype)
  params = {'embedding': np.float32(rng.normal(size=(size, width)))}
  with kernels.target(platform, interpret=True):
    y, pull = jax.vjp(
        lambda params: module.apply({'params': params}, ids), params)
    got = pull(jnp.asarray(dy, dtype))[0]['embedding']
  rows = jnp.asarray(params['embedding'], dtype)[ids]
  np.testing.assert_array_equal(np.float32(y), np.float32(rows))
  want = np.zeros((size, width))
  np.add.at(want, ids, dy)
  assert got.dtype == jnp.float32 and not np.asarray(got)[-1].any()
  # A bfloat16 scatter rounds each partial sum.
  bound = 1e-5 if dtype == jnp.float32 else 0.1
  np.testing.assert_allclose(got, want, rtol=bound, atol=bound)


@pytest.mark.parametrize('platform', ['gpu', 'tpu'])
def test_no_gradient_is_rounded(platform):
  """An id with one token gets exactly that token's float32 gradient."""
  rng = np.random.default_rng(0)
  ids = rng.permutation(37)[None]
  dy = np.float32(rng.normal(size=(1, 37, 20)))
  with kernels.target(platform, interpret=True):
    _, pull = jax.vjp(lambda table: Embedding(37, 20).apply(
        {'params': {'embedding': table}}, ids), np.zeros((37, 20), np.float32))
    got = pull(jnp.asarray(dy))[0]
  np.testing.assert_array_equal(got[ids[0]], dy[0])


def test_many_tokens_on_a_gpu():
  """Tests several programs of several blocks, under vmap over tables."""
  rng = np.random.default_rng(0)
  ids = rng.integers(0, 16, (2, 1500))
  dy = np.float32(rng.normal(size=(3, 2, 1500, 16)))

  def gradient(table, dy):
    return jax.vjp(lambda table: Embedding(16, 16).apply(
        {'params': {'embedding': table}}, ids), table)[1](dy)[0]

  with kernels.target('gpu', interpret=True):
    got = jax.vmap(gradient)(jnp.zeros((3, 16, 16)), jnp.asarray(dy))
  want = np.zeros((3, 16, 16))
  for i in range(3):
    np.add.at(want[i], ids, np.float64(dy[i]))
  np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
