"""Compares Performer's FAVOR+ with performer-pytorch, on our frequencies.

The package has one set of frequencies for all heads, so the tests call it head
by head. Its normaliser counts padded keys, so there is no padding. It subtracts
maxima without a gradient. They cancel only without an epsilon, so the test
makes them pass gradients, as our code and the authors' do.
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
  """Compares ReLU features with the package's generalized attention.

  The package does not divide features by sqrt(M), which cancels.
  """
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
