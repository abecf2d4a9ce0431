"""Compares long convolutions with sums over pairs of tokens in float64."""

import numpy as np
import pytest

from lra.nn.long_convolution import convolve, exponential_sums


@pytest.mark.parametrize('length, taps', [(1, 1), (37, 37), (50, 8)])
@pytest.mark.parametrize('own', [None, True, False])
def test_convolve(length, taps, own):
  rng = np.random.default_rng(0)
  x = rng.standard_normal((2, length, 3)).astype('f')
  forward, back = rng.standard_normal((2, 3, taps)).astype('f')
  want = np.zeros(x.shape)
  for t, s in np.ndindex(length, length):
    if 0 <= t - s < taps:
      want[:, t] += forward[:, t - s] * x[:, s].astype(float)
    lag = s - t - (own is False)
    if own is not None and 0 <= lag < taps:
      want[:, t] += back[:, lag] * x[:, s].astype(float)
  got = convolve(x, forward) if own is None else convolve(
      x, forward, back, own_twice=own)
  np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.every(5, 1)
@pytest.mark.parametrize('taps', [1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize('kind', ['real', 'complex'])
def test_exponential_sums(taps, kind):
  rng = np.random.default_rng(1)
  weight = rng.standard_normal((3, 5)) + 0j
  exponent = -rng.uniform(0, 0.05, (3, 5)) + 0j
  if kind == 'complex':
    weight = weight + 1j * rng.standard_normal((3, 5))
    exponent = exponent + 1j * rng.uniform(-3, 3, (3, 5))
  want = (weight[..., None] * np.exp(
      exponent[..., None] * np.arange(taps))).sum(1).real
  if kind == 'real':
    weight, exponent = weight.real, exponent.real
  dtype = 'complex64' if kind == 'complex' else 'float32'
  got = exponential_sums(weight.astype(dtype), exponent.astype(dtype), taps)
  assert got.shape == (3, taps)
  np.testing.assert_allclose(got, want, atol=2e-3 if taps > 500 else 2e-4)
