"""Compares convolutions with explicit sums in float64."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import kernels
from lra.nn import convolution
from lra.nn.convolution import ShortConvolution, convolve, exponential_sums
from tests.helpers import mixer_oracle, recurrent_oracle


@pytest.mark.parametrize('width, platform', [
    (1, 'cpu'), (4, 'cpu'), (5, 'gpu'), (30, 'cpu'), (30, 'gpu')])
def test_depthwise_equals_the_sum_and_its_gradients(width, platform):
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
  with kernels.target(platform):
    got, pull = jax.vjp(convolution.depthwise, jnp.float32(x),
                        jnp.float32(weight))
    grads = pull(jnp.float32(g))
  for a, b in zip((got, *grads), (want, dx, dweight), strict=True):
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


class _Run:
  """A module whose call has the form of a mixer."""

  def __init__(self, reverse, **options):
    self.module, self.reverse = ShortConvolution(**options), reverse

  def init(self, key, x, mask, train):
    del train
    return self.module.init(key, x, mask, self.reverse)

  def apply(self, variables, x, mask, train):
    del train
    return self.module.apply(variables, x, mask, self.reverse)


@pytest.mark.every(3, 1)
@pytest.mark.parametrize('reverse', [False, True])
@pytest.mark.parametrize('options', [
    {}, {'width': 1}, {'width': 3, 'use_bias': True},
    {'width': 16}], ids=str)
def test_a_short_one_equals_the_sum(options, reverse):
  x, mask = mixer_oracle.ragged(11, 6, 0, width=5)
  mask[0, :2] = mask[0, 5] = False  # padding before and between tokens
  mixer_oracle.check(
      _Run(reverse, **options),
      lambda xp, p, x, mask: recurrent_oracle.convolve(
          xp, x, p, mask, reverse), x, mask)


def test_masked_outputs_and_gradients_are_zero_whatever_they_hold():
  x, mask = mixer_oracle.ragged(7, 3, width=4)
  module = ShortConvolution(use_bias=True)
  variables = mixer_oracle.init(_Run(False, use_bias=True), x, mask)
  filled = np.where(mask[..., None], x, np.nan)
  y, pull = jax.vjp(lambda x: module.apply(variables, x, mask), filled)
  np.testing.assert_array_equal(y, module.apply(variables, x, mask))
  np.testing.assert_array_equal(np.asarray(y)[~mask], 0)
  np.testing.assert_array_equal(
      np.asarray(pull(jnp.ones_like(y))[0])[~mask], 0)


def test_a_short_convolution_joins_a_token_and_those_before_it():
  """Compares the causal short convolution with loops in float64."""
  rng = np.random.default_rng(0)
  x = rng.standard_normal((2, 7, 3))
  weight = rng.standard_normal((4, 3))
  got = convolution.PlainConvolution(4).apply(
      {'params': {'kernel': weight.astype(np.float32)}}, x.astype(np.float32))
  want = np.zeros_like(x)
  for t, i in itertools.product(range(7), range(4)):
    if t >= i:
      want[:, t] += weight[i] * x[:, t - i]
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


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
