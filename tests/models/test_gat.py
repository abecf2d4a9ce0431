"""Compares graph attention with its equations over all pairs of tokens."""

import numpy as np
import pytest

from lra.models.gat import Mixer
from tests.helpers import mixer_oracle, sparse_oracle


def _oracle(radius):
  """Returns a dense GAT under a mask, from equations 1 to 5."""
  def oracle(xp, params, x, mask):
    h = mixer_oracle.heads(xp, x, params['value'])
    own, other = ((h * params[name]).sum(-1).swapaxes(1, 2)
                  for name in ('own_score', 'other_score'))
    e = own[..., :, None] + other[..., None, :]
    e = xp.where(e > 0, e, 0.2 * e)
    near = sparse_oracle.matrix(x.shape[1], lambda i, j: abs(i - j) <= radius)
    weights = mixer_oracle.softmax_under(
        xp, e, np.broadcast_to(near & mask[:, None, None, :], e.shape))
    o = mixer_oracle.weigh(xp, weights, h).reshape(x.shape) + params['bias']
    return xp.where(o > 0, o, xp.expm1(xp.where(o > 0, 0, o)))

  return oracle


@pytest.mark.parametrize('radius', [
    5, mixer_oracle.full(0), mixer_oracle.full(37),
    mixer_oracle.full(2**20)])
def test_equals_dense_attention_under_the_mask(radius):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer = Mixer(num_heads=2, radius=radius)
  variables = mixer_oracle.init(mixer, x, mask)
  # Scores of both signs, and weights far from uniform.
  for name in ('own_score', 'other_score'):
    variables['params'][name] *= 3
  mixer_oracle.check(mixer, _oracle(radius), x, mask, variables=variables)
