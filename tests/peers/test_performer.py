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


def _compare(run, phi, **options):
  """Compares with the package's attention by phi(vectors, omega, is query)."""
  package = peer.load('performer_pytorch.performer_pytorch',
                      'performer-pytorch')
  x, mask = mixer_oracle.ragged(24, 24, width=16)
  mixer = Mixer(num_heads=2, qkv_width=16, num_features=12, **options)
  variables = mixer_oracle.init(mixer, x, mask)
  omega = torch.tensor(np.array(variables['constants']['omega']))

  def attend(q, k, v, mask):
    return torch.stack([package.linear_attention(
        *(phi(package, y[:, None], omega[h], is_query)
          for y, is_query in ((q[:, h], True), (k[:, h], False))),
        v[:, h, None])[:, 0] for h in range(2)], 1)

  run('performer-pytorch', mixer, peer.around(attend), x, mask,
      variables=variables)


@pytest.mark.parametrize('eps', [0.0, 1e-4])
def test_performer_pytorch(check, monkeypatch, eps):
  def phi(package, y, omega, is_query):
    with monkeypatch.context() as patch:
      patch.setattr(torch.Tensor, 'detach', lambda x: x)
      return package.softmax_kernel(
          y, projection_matrix=omega, is_query=is_query, eps=eps)

  _compare(check, phi, eps=eps)


def test_relu_features(check):
  """The package does not divide features by sqrt(M), which cancels."""
  _compare(check, lambda package, y, omega, _: package.generalized_kernel(
      y, projection_matrix=omega), feature_map='relu')
