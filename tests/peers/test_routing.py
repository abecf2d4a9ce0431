"""Clusters against the package routing-transformer, on the same weights.

It has the paper's running average: the centroids here are given to it. It
routes padding too, so there is none; and it divides the sum over clusters by
their number plus 1e-5, hence the tolerance.
"""

import jax
import jax.numpy as jnp
import mixer_oracle
import numpy as np
import pytest

from lra.models import routing

torch_mixer = pytest.importorskip('torch_mixer', reason='it needs PyTorch')
package = pytest.importorskip(
    'routing_transformer.routing_transformer',
    reason='the package routing-transformer is not installed')


def test_attention_within_the_same_clusters():
  x, mask = mixer_oracle.ragged(40, width=12)
  mixer = routing.Mixer(num_heads=2, qkv_width=12, num_clusters=4,
                        cluster_size=9)
  variables = mixer_oracle.init(mixer, x, mask)
  q, k = (routing._normalise(jnp.asarray(mixer_oracle.heads(
      np, x, variables['params'][name]))) for name in ('query', 'key'))
  centroids = [routing.kmeans(
      jnp.concatenate([q[0, :, h], k[0, :, h]]), np.ones(80, bool),
      variables['constants']['directions'][h], mixer.iterations)
               for h in range(2)]
  torch = torch_mixer.torch
  peer = package.KmeansAttention(
      num_clusters=4, window_size=9, num_heads=2, head_dim=6).eval()
  peer.kmeans.means.copy_(torch.tensor(np.asarray(jax.device_get(centroids))))
  peer.kmeans.initted.fill_(True)

  def attend(q, k, v, mask):
    q, k = (torch.nn.functional.layer_norm(y, (6,), eps=1e-6) for y in (q, k))
    return peer(q, k, v)[0]

  torch_mixer.check(mixer, attend, variables, x, mask, tolerance=2e-5)
