"""Compares the GPU's gradient of GELU with finite differences in float64."""

import jax
import numpy as np
import pytest
from scipy.special import erf

from lra import kernels
from lra.nn.mlp import gelu


def _exact(x):
  return x * (1 + erf(x / np.sqrt(2))) / 2


def _by_tanh(x):
  u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
  return x * (1 + np.tanh(u)) / 2


@pytest.mark.parametrize('reference', [_by_tanh, _exact])
def test_value_and_gradient_on_every_platform(reference):
  x = np.linspace(-6, 6, 101)
  slope = (reference(x + 1e-6) - reference(x - 1e-6)) / 2e-6
  for platform in ('gpu', 'tpu', 'cpu'):
    with kernels.target(platform):
      y, pull = jax.vjp(
          jax.jit(lambda x: gelu(x, reference is _exact)), np.float32(x))
      (dx,) = pull(np.float32(2 * np.ones_like(x)))
    np.testing.assert_allclose(y, reference(x), atol=1e-5)
    np.testing.assert_allclose(dx, 2 * slope, atol=1e-5)
