"""LayerNorm against its definition in float64, and flax's."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from lra.nn.norm import EPS, LayerNorm


def _case(dtype):
  rng = np.random.default_rng(0)
  x = jnp.asarray(2 * rng.normal(size=(3, 7, 16)) + 1, dtype)
  params = {'scale': np.float32(rng.normal(size=16)),
            'bias': np.float32(rng.normal(size=16))}
  return params, x, rng.normal(size=x.shape)


def _gradients(module, params, x, dy):
  y, pull = jax.vjp(
      lambda params, x: module.apply({'params': params}, x), params, x)
  return y, *pull(jnp.asarray(dy, y.dtype))


def test_gradients_are_those_of_its_definition_in_float64():
  """By differences along random directions."""
  params, x, dy = _case(jnp.float32)
  _, dparams, dx = _gradients(LayerNorm(), params, x, dy)

  def loss(x, scale, bias):
    unit = (x - x.mean(-1, keepdims=True)) / np.sqrt(
        x.var(-1, keepdims=True) + EPS)
    return ((unit * scale + bias) * dy).sum()

  exact = tuple(map(np.float64, (x, params['scale'], params['bias'])))
  found = tuple(map(np.float64, (dx, dparams['scale'], dparams['bias'])))
  for seed in range(5):
    along = [np.random.default_rng(seed + i).normal(size=w.shape)
             for i, w in enumerate(exact)]
    here, there = (loss(*(w + h * d for w, d in zip(
        exact, along, strict=True))) for h in (1e-6, -1e-6))
    got = sum((g * d).sum() for g, d in zip(found, along, strict=True))
    np.testing.assert_allclose(got, (here - there) / 2e-6, rtol=1e-4)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize('said', [True, False])
def test_it_is_that_of_flax(dtype, said):
  """Parameters and results, bit for bit; gradients but for rounding."""
  params, x, dy = _case(dtype)
  modules = [kind(dtype=dtype if said else None)
             for kind in (LayerNorm, nn.LayerNorm)]
  shapes = [jax.eval_shape(m.init, jax.random.key(0), x) for m in modules]
  assert shapes[0] == shapes[1]
  (y, dparams, dx), (y_flax, *flax) = (
      _gradients(m, params, x, dy) for m in modules)
  assert y.dtype == y_flax.dtype and dx.dtype == x.dtype
  np.testing.assert_array_equal(*(np.float32(v) for v in (y, y_flax)))
  bound = 1e-5 if dtype == jnp.float32 else 2e-2
  for got, want in zip(
      jax.tree.leaves((dparams, dx)), jax.tree.leaves(flax), strict=True):
    small.assert_close(np.float32(got), np.float32(want), bound)
