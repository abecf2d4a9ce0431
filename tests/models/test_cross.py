"""Compares cross attention both ways with its equations in float64."""

import numpy as np
import pytest

from lra.models.cross import Mixer
from tests.helpers import mixer_oracle


def oracle(xp, params, x, mask):
  q, k, v = (mixer_oracle.heads(xp, x, params[name])
             for name in ('query', 'key', 'value'))
  scale = q.shape[-1]**-0.5
  z = xp.stack([params['latents']] * len(x))
  read = mixer_oracle.attention(xp, z, k, v, mask, scale)
  key, value = (xp.einsum('bmhd,hde->bmhe', read, params[name])
                for name in ('latent_key', 'latent_value'))
  every = np.ones(read.shape[:2], bool)
  o = mixer_oracle.attention(xp, q, key, value, every, scale)
  return mixer_oracle.merge(xp, o, params['out'])


@pytest.mark.parametrize('kernel', ['chunked', mixer_oracle.full('dense')])
def test_equals_float64(kernel):
  x, mask = mixer_oracle.ragged(61, 20, 0, width=24)
  mixer_oracle.check(
      Mixer(num_heads=3, qkv_width=12, num_latents=5, kernel=kernel), oracle,
      x, mask)


def test_tokens_hear_of_each_other():
  """Changing the last token changes the first output, through the latents."""
  x, mask = mixer_oracle.ragged(20, width=8)
  mixer = Mixer(num_heads=2, qkv_width=8, num_latents=3)
  variables = mixer_oracle.init(mixer, x, mask)
  other = x.copy()
  other[:, -1] += 3
  change = (mixer_oracle.apply(mixer, variables, x, mask)
            - mixer_oracle.apply(mixer, variables, other, mask))
  assert np.abs(change[:, 0]).max() > 1e-3
