"""Compares the prefix sums over chunks with a recurrence in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.kernels import chunks
from tests.helpers.errors import relative_rms


@pytest.mark.parametrize('count', (1, 16, 17, 40, 300))
def test_prefix_is_the_recurrence(count):
  """The lengths give trees of 1, 2 and 3 levels, and full or shorter groups."""
  rng = np.random.default_rng(count)
  x = rng.standard_normal((2, count, 3, 4, 5)).astype(np.float32)
  slopes = np.array([0.0, 1e-3, 0.2], np.float32)
  left = np.exp(-slopes.astype(np.float64))[:, None, None]
  want, state = np.zeros(x.shape), 0.0
  for n in range(count):
    want[:, n] = state = left * state + x[:, n]
  got = jax.jit(chunks.prefix)(jnp.asarray(x), jnp.asarray(slopes))
  assert relative_rms(got, want) < 1e-5
  # Compare per head: the head without decay is larger and would hide errors.
  for h in range(3):
    assert relative_rms(got[:, :, h], want[:, :, h]) < 1e-5
