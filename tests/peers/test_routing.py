"""Compares Routing Transformer with the package routing-transformer.

The package averages centroids over training steps, so it gets ours. It divides
logits by sqrt(Dh), as our option `scaled` does; the paper's algorithm does not.
It routes padding too, so there is none. It divides the sum over clusters by
their number plus 1e-5, so the tolerance is larger.
"""

import jax
import jax.numpy as jnp
import numpy as np

from lra.models import routing
from lra.nn import norm
from tests.helpers import mixer_oracle, peer

torch = peer.torch


def test_routing_transformer(check):
  """Compares attention within clusters of the same centroids."""
  package = peer.load('routing_transformer.routing_transformer',
                      'routing-transformer')
  x, mask = mixer_oracle.ragged(40, width=12)
  mixer = routing.Mixer(num_heads=2, qkv_width=12, num_clusters=4,
                        cluster_size=9, scaled=True)
  variables = mixer_oracle.init(mixer, x, mask)
  q, k = (norm.standardise(jnp.asarray(mixer_oracle.heads(
      np, x, variables['params'][name])), 1e-6) for name in ('query', 'key'))
  centroids = [routing.kmeans(
      jnp.concatenate([q[0, :, h], k[0, :, h]]), np.ones(80, bool),
      variables['constants']['directions'][h], mixer.iterations)
               for h in range(2)]
  attention = package.KmeansAttention(
      num_clusters=4, window_size=9, num_heads=2, head_dim=6).eval()
  attention.kmeans.means.copy_(
      torch.tensor(np.asarray(jax.device_get(centroids))))
  attention.kmeans.initted.fill_(True)

  def attend(q, k, v, mask):
    q, k = (torch.nn.functional.layer_norm(y, (6,), eps=1e-6) for y in (q, k))
    return attention(q, k, v)[0]

  check('routing-transformer', mixer, peer.around(attend), x, mask,
        variables=variables, tolerance=2e-5)
