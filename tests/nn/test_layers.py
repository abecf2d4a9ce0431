"""Compares projections with Flax's dense layers, and GELU with its equation."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.nn import layers
from lra.nn.mlp import gelu
from tests.helpers import recurrent_oracle

X = jax.random.normal(jax.random.key(0), (2, 7, 12))


class _Flax(nn.Module):
  """Projects to queries, keys and values, and back, by `nn.DenseGeneral`."""
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x):
    def dense(name, features, axis=-1):
      return nn.DenseGeneral(features, axis, dtype=self.dtype, name=name,
                             kernel_init=nn.initializers.xavier_uniform())

    heads = [dense(name, (2, 3))(x) for name in ('query', 'key', 'value')]
    return heads, dense('out', 12, (-2, -1))(heads[0])


class _Ours(nn.Module):
  dtype: jnp.dtype
  packed: bool = False

  @nn.compact
  def __call__(self, x):
    if self.packed:
      qkv, bias = layers.project_packed(x, 2, 6, self.dtype)
      assert bias.shape == (3, 2, 3) and bias.dtype == jnp.float32
      heads = [qkv[:, :, i] for i in range(3)]
    else:
      heads = [layers.project_heads(x, 2, 6, self.dtype, name)
               for name in layers.QKV]
    return heads, layers.merge_heads_and_project(heads[0], 12, self.dtype)


@pytest.mark.parametrize('packed', (False, True))
@pytest.mark.parametrize('dtype', (jnp.float32, jnp.bfloat16))
def test_projections_are_those_of_flax(dtype, packed):
  """Projections have the parameters and results of Flax for a given seed."""
  want, ours = _Flax(dtype), _Ours(dtype, packed)
  params = jax.jit(want.init)(jax.random.key(1), X)
  got = jax.jit(ours.init)(jax.random.key(1), X)
  jax.tree.map(np.testing.assert_array_equal, got, params)
  params = jax.tree.map(lambda p: p + 0.5, params)  # biases too
  got, want = (jax.jit(m.apply)(params, X) for m in (ours, want))
  assert jax.tree.structure(got) == jax.tree.structure(want)
  bound = 1e-6 if dtype == jnp.float32 else 0.02
  for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    assert x.dtype == y.dtype == dtype
    np.testing.assert_allclose(
        *(np.float64(z) for z in (x, y)), atol=bound * np.abs(y).max())


@pytest.mark.full
def test_unit_vectors_and_the_gradient_at_zero():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(5, 8)).astype(np.float32)
  x[1] = 0  # a zero vector stays zero
  got = np.asarray(layers.unit(jnp.asarray(x)), np.float64)
  lengths = np.linalg.norm(x.astype(np.float64), axis=-1, keepdims=True)
  # A sum of eight squares, a root and a product of float32 numbers below 1.
  np.testing.assert_allclose(
      got, x / np.where(lengths > 0, lengths, 1), rtol=1e-5, atol=1e-6)
  grads = jax.grad(lambda x: (layers.unit(x) * x[::-1]).sum())(jnp.asarray(x))
  assert np.isfinite(grads).all() and np.abs(grads).max() < 100


@pytest.mark.parametrize('exact', [False, True])
def test_value_and_gradient_on_every_platform(exact):
  x = np.linspace(-6, 6, 101)
  reference = functools.partial(recurrent_oracle.gelu, np, exact=exact)
  slope = (reference(x + 1e-6) - reference(x - 1e-6)) / 2e-6
  for platform in ('gpu', 'tpu', 'cpu'):
    with kernels.target(platform):
      y, pull = jax.vjp(
          jax.jit(lambda x: gelu(x, exact)), np.float32(x))
      (dx,) = pull(np.float32(2 * np.ones_like(x)))
    np.testing.assert_allclose(y, reference(x), atol=1e-5)
    np.testing.assert_allclose(dx, 2 * slope, atol=1e-5)
