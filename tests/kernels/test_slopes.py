"""Compares closed-form derivatives of kernels with finite differences."""

import jax.numpy as jnp
import numpy as np
import pytest

from lra.kernels.linear import features

X = np.r_[np.linspace(-12, 12, 96), -1e-3, 1e-3]  # avoids the kink at 0


def _difference(function, step=1e-6):
  return (function(X + step) - function(X - step)) / (2 * step)


def test_silu():
  function = lambda x: x / (1 + np.exp(-x))
  x = jnp.asarray(X, jnp.float32)
  np.testing.assert_allclose(
      features.silu(x), function(X), rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(
      features.silu_slope(x), _difference(function), atol=1e-5)


@pytest.mark.parametrize('name, function', [
  ('elu1', lambda x: np.where(x > 0, x + 1, np.exp(x))),
  ('relu', lambda x: np.maximum(x, 0)),
  ('identity', lambda x: x),
])
def test_feature_maps(name, function):
  x = jnp.asarray(X, jnp.float32)
  phi = features.apply(name, x)
  np.testing.assert_allclose(phi, function(X), rtol=1e-5, atol=1e-7)
  for got in (features.slope(name, x), features.slope_from(name, phi)):
    np.testing.assert_allclose(got, _difference(function), atol=1e-5)
