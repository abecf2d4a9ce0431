"""Compares the short convolution with an explicit sum in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.nn.short_convolution import ShortConvolution
from tests.helpers import mixer_oracle
from tests.helpers.state_space_oracle import sigmoid


def _oracle(xp, p, x, mask, reverse, activation):
  x = xp.where(mask[..., None], x, 0)
  if reverse:
    x = x[:, ::-1]
  rows = []
  for t in range(x.shape[1]):
    seen = [(t - lag, lag) for lag in range(len(p['kernel'])) if lag <= t]
    rows.append(sum(x[:, s] * p['kernel'][-1 - lag] for s, lag in seen))
  y = xp.stack(rows[::-1] if reverse else rows, 1) + p.get('bias', 0)
  y = y * sigmoid(xp, y) if activation == 'silu' else y
  return xp.where(mask[..., None], y, 0)


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
    {}, {'width': 1}, {'width': 3, 'activation': 'identity', 'use_bias': True},
    {'width': 16}], ids=str)
def test_equals_the_sum(options, reverse):
  x, mask = mixer_oracle.ragged(11, 6, 0, width=5)
  mask[0, :2] = mask[0, 5] = False  # padding before and between tokens
  activation = options.get('activation', 'silu')
  mixer_oracle.check(
      _Run(reverse, **options),
      lambda xp, p, x, mask: _oracle(xp, p, x, mask, reverse, activation),
      x, mask)


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
