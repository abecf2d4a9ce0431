"""Compares depth-wise convolution with an explicit sum in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.nn import convolution


@pytest.mark.parametrize('width', [1, 4, 5, 30])
def test_equals_the_sum_and_its_gradients(width):
  rng = np.random.default_rng(0)
  x, g = rng.normal(size=(2, 2, 11, 3, 2))
  weight = rng.normal(size=(width, 3, 2))
  want, dx, dweight = np.zeros_like(x), np.zeros_like(x), np.zeros_like(weight)
  for t in range(11):
    for i in range(width):
      s = t + i - width // 2
      if 0 <= s < 11:
        want[:, t] += weight[i] * x[:, s]
        dx[:, s] += weight[i] * g[:, t]
        dweight[i] += (x[:, s] * g[:, t]).sum(0)
  got, pull = jax.vjp(jax.jit(convolution.depthwise),
                      jnp.float32(x), jnp.float32(weight))
  for a, b in zip((got, *pull(jnp.float32(g))), (want, dx, dweight),
                  strict=True):
    assert a.dtype == jnp.float32
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


def test_bfloat16_is_rounded_once():
  rng = np.random.default_rng(0)
  x = jnp.bfloat16(rng.normal(size=(1, 50, 8)))
  weight = rng.normal(size=(35, 8)).astype(np.float32)
  got = jax.jit(convolution.depthwise)(x, weight)
  want = convolution.depthwise(x.astype(jnp.float32), weight)
  assert got.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.float32(got), want, rtol=2**-8, atol=1e-5)
