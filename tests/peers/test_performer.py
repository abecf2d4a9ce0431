"""FAVOR+ beside performer-pytorch, on our frequencies.

It draws one set of frequencies for all heads: its functions are called head by
head. Its mask leaves padded keys in the normaliser, so there is no padding.
It takes no gradient through the maxima that it subtracts, which cancel unless
an epsilon is added: here it does, as we and the authors' code do.
"""

import numpy as np
import pytest

from lra.models.performer import Mixer
from tests.helpers import mixer_oracle, peer

torch = peer.torch


@pytest.mark.parametrize('eps', [0.0, 1e-4])
def test_performer_pytorch(check, monkeypatch, eps):
  package = peer.load('performer_pytorch.performer_pytorch',
                      'performer-pytorch')
  x, mask = mixer_oracle.ragged(24, 24, width=16)
  mixer = Mixer(num_heads=2, qkv_width=16, num_features=12, eps=eps)
  variables = mixer_oracle.init(mixer, x, mask)
  omega = np.array(variables['constants']['omega'])

  def one_head(q, k, v, omega):
    q, k = (package.softmax_kernel(
        y[:, None], projection_matrix=omega, is_query=is_query, eps=eps)
            for y, is_query in ((q, True), (k, False)))
    return package.linear_attention(q, k, v[:, None])[:, 0]

  def attend(q, k, v, mask):
    with monkeypatch.context() as patch:
      patch.setattr(torch.Tensor, 'detach', lambda x: x)
      return torch.stack([
          one_head(q[:, h], k[:, h], v[:, h], torch.tensor(omega[h]))
          for h in range(2)], 1)

  check('performer-pytorch', mixer, peer.around(attend), x, mask,
        variables=variables)


def test_relu_features(check):
  """Its generalized attention; it divides no feature by sqrt(M)."""
  package = peer.load('performer_pytorch.performer_pytorch',
                      'performer-pytorch')
  x, mask = mixer_oracle.ragged(24, 24, width=16)
  mixer = Mixer(num_heads=2, qkv_width=16, num_features=12, feature_map='relu')
  variables = mixer_oracle.init(mixer, x, mask)
  omega = np.array(variables['constants']['omega'])

  def one_head(q, k, v, omega):
    q, k = (package.generalized_kernel(y[:, None], projection_matrix=omega)
            for y in (q, k))
    return package.linear_attention(q, k, v[:, None])[:, 0]

  def attend(q, k, v, mask):
    return torch.stack([
        one_head(q[:, h], k[:, h], v[:, h], torch.tensor(omega[h]))
        for h in range(2)], 1)

  check('performer-pytorch', mixer, peer.around(attend), x, mask,
        variables=variables)
