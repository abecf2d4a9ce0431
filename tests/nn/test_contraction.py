"""Dense layers whose gradients are summed example by example."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kernels
import small
from lra.nn import contraction
from lra.nn.contraction import Dense

B, L, INS, OUTS = 3, 50, 6, 9


def _arrays(dtype=np.float32, lead=(B, L)):
  rng = np.random.default_rng(0)
  return [np.asarray(rng.normal(size=shape), dtype) for shape in (
      (*lead, INS), (INS, OUTS), (OUTS,), (*lead, OUTS))]


def _results(layer, x, kernel, bias, g):
  """The layer's output, and gradients of x, kernel and bias, from g."""
  y, pull = jax.vjp(
      lambda x, kernel, bias: layer.apply(
          {'params': {'kernel': kernel, 'bias': bias}}, x), x, kernel, bias)
  return y, *pull(g.astype(y.dtype))


@pytest.mark.parametrize('lead', [(B, L), (L,), (2, B, L)])
def test_values_and_gradients_are_those_of_the_equation(lead):
  x, kernel, bias, g = _arrays(lead=lead)
  found = jax.jit(lambda *a: _results(Dense(OUTS), *a))(x, kernel, bias, g)
  x, kernel, bias, g = (a.astype(np.float64) for a in (x, kernel, bias, g))
  want = (x @ kernel + bias,
          g @ kernel.T,
          x.reshape(-1, INS).T @ g.reshape(-1, OUTS),
          g.reshape(-1, OUTS).sum(0))
  for a, b in zip(found, want, strict=True):
    small.assert_close(a, b)


@pytest.mark.parametrize('dtype', (np.float32, jnp.bfloat16))
def test_another_order_of_the_weights_and_another_dtype(dtype):
  """A float32 result of bfloat16, whose products are exact in float32."""
  x, kernel, _, g = _arrays()
  x, kernel = jnp.asarray(x, dtype), jnp.asarray(kernel.T, dtype)
  y, pull = jax.vjp(lambda x, kernel: contraction.einsum(
      'bli,oi->blo', x, kernel, dtype=jnp.float32), x, kernel)
  dx, dkernel = pull(jnp.asarray(g))
  assert y.dtype == jnp.float32
  assert dx.dtype == dkernel.dtype == dtype
  x, kernel, g = (np.asarray(a, np.float64) for a in (x, kernel, g))
  small.assert_close(y, x @ kernel.T)
  tolerance = 1e-5 if dtype == np.float32 else 0.01  # they are rounded
  small.assert_close(dx, g @ kernel, tolerance)
  small.assert_close(
      dkernel, g.reshape(-1, OUTS).T @ x.reshape(-1, INS), tolerance)


def test_it_makes_the_parameters_of_flax():
  x = jnp.ones((B, L, INS))
  ours, flax = (layer(OUTS).init(jax.random.key(0), x)
                for layer in (Dense, nn.Dense))
  jax.tree.map(np.testing.assert_array_equal, ours, flax)


def test_results_have_the_dtypes_of_what_they_are_of():
  x, kernel, bias, g = _arrays()
  layer = Dense(OUTS, dtype=jnp.bfloat16)
  found = _results(layer, x.astype(jnp.bfloat16), kernel, bias, g)
  assert [a.dtype for a in found[1:]] == [
      jnp.bfloat16, jnp.float32, jnp.float32]


def test_only_a_processor_takes_other_steps():
  """Elsewhere the program is flax's own."""
  arrays = _arrays()
  for platform in ('gpu', 'tpu', 'cpu'):
    with kernels.target(platform):
      ours, flax = (
          str(jax.make_jaxpr(lambda *a, layer=layer: _results(
              layer(OUTS), *a))(*arrays))
          for layer in (Dense, nn.Dense))
    assert (ours == flax) == (platform != 'cpu')
