"""Gradients of tables of vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kernels
from lra.nn.embedding import SMALL, Embedding


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize('size', [5, SMALL, SMALL + 1])
@pytest.mark.parametrize('platform', ['cpu', 'gpu', 'tpu'])
def test_each_id_gets_the_sum_over_its_tokens(platform, size, dtype):
  """Padding, id 0, and an id without a token too; in float64."""
  rng = np.random.default_rng(0)
  ids = rng.integers(0, size - 1, (3, 50)) * (rng.random((3, 50)) < 0.7)
  dy = np.asarray(jnp.asarray(rng.normal(size=(3, 50, 4)), dtype), np.float64)
  module = Embedding(size, 4, dtype=dtype)
  params = {'embedding': np.float32(rng.normal(size=(size, 4)))}
  with kernels.target(platform):
    y, pull = jax.vjp(
        lambda params: module.apply({'params': params}, ids), params)
    got = pull(jnp.asarray(dy, dtype))[0]['embedding']
  rows = jnp.asarray(params['embedding'], dtype)[ids]
  np.testing.assert_array_equal(np.float32(y), np.float32(rows))
  want = np.zeros((size, 4))
  np.add.at(want, ids, dy)
  assert got.dtype == jnp.float32 and not np.asarray(got)[-1].any()
  # A scatter in bfloat16 rounds each sum on its way.
  bound = 1e-5 if dtype == jnp.float32 else 0.1
  np.testing.assert_allclose(got, want, rtol=bound, atol=bound)
