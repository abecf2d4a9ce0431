"""Tests dense layers that sum gradients example by example."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.nn import contraction
from lra.nn.contraction import Dense
from tests.helpers import small

B, L, INS, OUTS = 3, 50, 6, 9


def _arrays(dtype=np.float32, lead=(B, L)):
  rng = np.random.default_rng(0)
  return [np.asarray(rng.normal(size=shape), dtype) for shape in (
      (*lead, INS), (INS, OUTS), (OUTS,), (*lead, OUTS))]


def _results(layer, x, kernel, bias, g):
  """Returns the layer's output, and gradients of x, kernel, bias for `g`."""
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
  """A transposed kernel and a float32 result of bfloat16 inputs work."""
  x, kernel, _, g = _arrays()
  x, kernel = jnp.asarray(x, dtype), jnp.asarray(kernel.T, dtype)
  y, pull = jax.vjp(lambda x, kernel: contraction.einsum(
      'bli,oi->blo', x, kernel, dtype=jnp.float32), x, kernel)
  dx, dkernel = pull(jnp.asarray(g))
  assert y.dtype == jnp.float32
  assert dx.dtype == dkernel.dtype == dtype
  x, kernel, g = (np.asarray(a, np.float64) for a in (x, kernel, g))
  small.assert_close(y, x @ kernel.T)
  tolerance = 1e-5 if dtype == np.float32 else 0.01  # gradients are rounded
  small.assert_close(dx, g @ kernel, tolerance)
  small.assert_close(
      dkernel, g.reshape(-1, OUTS).T @ x.reshape(-1, INS), tolerance)


def test_it_makes_the_parameters_of_flax():
  x = jnp.ones((B, L, INS))
  ours, flax = (jax.jit(layer(OUTS).init)(jax.random.key(0), x)
                for layer in (Dense, nn.Dense))
  jax.tree.map(np.testing.assert_array_equal, ours, flax)


def _product(x, weight, dy, platform='gpu'):
  with kernels.target(platform, interpret=True):
    y, pull = jax.vjp(contraction.product, x, weight)
    return y, *pull(dy)


@pytest.mark.every(5)
# Partly filled blocks of tokens and of columns; several programs.
@pytest.mark.parametrize('dtype', (np.float32, jnp.bfloat16))
@pytest.mark.parametrize('shape', [
    (2, 37, 64, 192), (3, 27, 20, 24), (2, 600, 16, 16), (1, 50, 48, 150),
    (1, 9, 128, 60)], ids=str)
def test_both_gradients_by_one_kernel_on_a_gpu(shape, dtype):
  """Compares both gradients with float64.

  The interpreter rounds float32 operands to TF32, hence the tolerance.
  """
  b, length, ins, outs = shape
  rng = np.random.default_rng(0)
  x, dy = (jnp.asarray(rng.normal(size=(b, length, n)), dtype)
           for n in (ins, outs))
  weight = np.float32(rng.normal(size=(ins, outs)))
  program = str(jax.make_jaxpr(lambda *a: _product(*a))(x, weight, dy))
  assert 'dense_gradients' in program
  y, dx, dweight = jax.jit(_product)(x, weight, dy)
  assert y.dtype == dx.dtype == dtype and dweight.dtype == np.float32
  exact = np.float64(jnp.asarray(weight, dtype))
  x, dy = np.float64(x), np.float64(dy)
  bound = 1e-3 if dtype == np.float32 else 1e-2
  small.assert_close(np.float32(y), x @ exact, bound)
  small.assert_close(np.float32(dx), dy @ exact.T, bound)
  small.assert_close(dweight, np.einsum('bli,blo->io', x, dy), 1e-3)


def test_a_wide_layer_or_a_precise_one_takes_no_kernel_on_a_gpu():
  x = np.ones((1, 8, 128), np.float32)

  def names(outs):
    dy, weight = np.ones((1, 8, outs)), np.ones((128, outs))
    return str(jax.make_jaxpr(lambda *a: _product(*a))(
        x, np.float32(weight), np.float32(dy)))

  assert 'pallas_call' in names(64) and 'pallas_call' not in names(128)
  with jax.default_matmul_precision('highest'):
    assert 'pallas_call' not in names(64)


def test_weights_get_the_gradient_of_the_whole_batch_over_a_mesh():
  rng = np.random.default_rng(0)
  x, weight, dy = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in
                   ((4, 21, 32), (32, 48), (4, 21, 48)))
  mesh = jax.make_mesh((2,), ('data',), (jax.sharding.AxisType.Auto,),
                       devices=jax.devices()[:2])
  with jax.set_mesh(mesh):
    got = jax.jit(_product)(x, weight, dy)
  small.assert_close(got, jax.jit(_product)(x, weight, dy))
