"""Tests rotary positions as complex numbers, and which mixers use them."""

import jax.numpy as jnp
import numpy as np
import pytest

from lra import models
from lra.core.errors import UserError
from lra.nn import rotary
from tests.helpers import mixer_oracle, small

RNG = np.random.default_rng(0)


def test_pairs_are_turned_as_complex_numbers():
  x = RNG.normal(size=(2, 50, 3, 8)).astype(np.float32)
  got = np.asarray(rotary.rotate(x), np.float64)
  # The tolerance is six float32 roundings of values below 4.
  for p in (0, 1, 49):
    for i in range(4):
      turn = np.exp(1j * p * 10_000 ** (-2 * i / 8))
      z = (x[:, p, :, i] + 1j * x[:, p, :, i + 4]) * turn
      np.testing.assert_allclose(got[:, p, :, i], z.real, atol=2e-6)
      np.testing.assert_allclose(got[:, p, :, i + 4], z.imag, atol=2e-6)


def test_an_odd_width_is_refused():
  with pytest.raises(ValueError, match='5 channels'):
    rotary.angles(3, 5)


TURNING = [name for name in models.names()
           if hasattr(models.mixer(name), 'rotary')]


@pytest.mark.every(4)
@pytest.mark.parametrize('name', TURNING)
def test_turned_queries_and_keys_are_what_is_mixed(name):
  mixer = models.mixer(name)

  class Turned(mixer):

    def project(self, x_BxLxD):
      q, k, v = super().project(x_BxLxD)
      return mixer_oracle.turn(jnp, q), mixer_oracle.turn(jnp, k), v

  x, mask = mixer_oracle.ragged(61, 20, width=24)
  sizes = {'num_heads': 4, 'qkv_width': 16}
  variables = mixer_oracle.init(mixer(**sizes), x, mask)
  plain, turned, want = (
      mixer_oracle.apply(m, variables, x, mask)[mask] for m in (
          mixer(**sizes, rotary=False), mixer(**sizes, rotary=True),
          Turned(**sizes, rotary=False)))
  small.assert_close(turned, want)
  assert np.abs(turned - plain).max() > 1e-2


@pytest.mark.parametrize('name', TURNING)
def test_heads_of_odd_width_cannot_be_turned(name):
  x, mask = mixer_oracle.ragged(4, width=12)
  with pytest.raises(UserError, match='Heads of width 3 .*qkv_width'):
    mixer_oracle.shapes(models.mixer(name)(
        num_heads=2, qkv_width=6, rotary=True), x, mask)
