"""Attention with a bias for each distance, in blocks of queries."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from lra.nn import relative

RNG = np.random.default_rng(0)


def test_rows_are_moved_on_by_one():
  x = RNG.normal(size=(2, 4 + 7 - 1))
  got = np.asarray(relative.along_diagonals(x, 4))
  for r in range(4):
    for c in range(7):
      np.testing.assert_array_equal(got[:, r, c], x.astype('f')[:, 3 - r + c])


@pytest.mark.parametrize('rows', [1, 7, 33])
def test_blocks_of_queries_are_one_softmax(rows):
  """Values and the gradient of the biases, which all blocks share."""
  q, k, v = (RNG.normal(size=(2, 33, 2, 8)).astype(np.float32)
             for _ in range(3))
  bias = RNG.normal(size=(2, 65)).astype(np.float32)
  mask = np.arange(33) < np.array([[33], [12]])

  def loss(bias, rows):
    out = relative.attend(q, k, v, mask, bias, scale=0.3, rows=rows)
    return (out * v).sum(), out

  run = jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)
  small.assert_close(run(bias, rows), run(bias, 64))


def test_no_key_no_output():
  x = RNG.normal(size=(1, 5, 1, 4)).astype(np.float32)
  run = functools.partial(relative.attend, scale=1.0)
  mask = np.zeros((1, 5), bool)
  assert not np.asarray(run(x, x, x, mask, np.ones((1, 9), 'f'))).any()


def test_gradients_of_keys_are_summed_in_float32():
  """Of bfloat16 inputs, in 64 blocks as well as in one."""
  q, k, v, g = (RNG.normal(size=(1, 256, 1, 8)).astype(jnp.bfloat16)
                for _ in range(4))
  bias, mask = np.zeros((1, 511), np.float32), np.ones((1, 256), bool)

  def loss(v, rows, dtype):
    out = relative.attend(*(x.astype(dtype) for x in (q, k, v)), mask, bias,
                          scale=0.1, rows=rows)
    return (out.astype(jnp.float32) * g.astype(np.float32)).sum()

  run = jax.jit(jax.grad(loss), static_argnums=(1, 2))
  exact = np.asarray(run(v.astype(np.float32), 256, jnp.float32))
  errors = [np.linalg.norm(np.asarray(run(v, rows, jnp.bfloat16), 'f') - exact)
            for rows in (256, 4)]
  assert errors[1] < 1.5 * errors[0], errors
