"""Compares the token-mixing perceptron with its equation in float64."""

import numpy as np

from lra.models.mlp_mixer import Mixer
from tests.helpers import mixer_oracle


def oracle(xp, params, x, mask):
  x = x * mask[..., None]
  n = x.shape[1]
  y = xp.einsum('ls,bld->bsd', params['up_kernel'][:n], x)
  y = y + params['up_bias'][:, None]
  y = y * (1 + xp.tanh((2 / np.pi)**0.5 * (y + 0.044715 * y**3))) / 2
  y = xp.einsum('sl,bsd->bld', params['down_kernel'][:, :n], y)
  return y + params['down_bias'][:n, None]


def test_equals_float64():
  x, mask = mixer_oracle.ragged(21, 12, 0, width=8)
  mixer = Mixer(hidden=5, full_length=30)
  mixer_oracle.check(mixer, oracle, x, mask)
  shapes = mixer_oracle.shapes(mixer, x, mask)
  assert shapes['up_kernel'].shape == (30, 5)


def test_the_content_of_padding_changes_nothing():
  x, mask = mixer_oracle.ragged(21, 12, width=8)
  mixer = Mixer(hidden=5)
  variables = mixer_oracle.init(mixer, x, mask)
  other = np.where(mask[..., None], x, 7).astype(np.float32)
  np.testing.assert_array_equal(*(
      mixer_oracle.apply(mixer, variables, y, mask)[mask] for y in (x, other)))
