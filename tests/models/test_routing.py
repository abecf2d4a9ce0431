"""Compares routing attention with dense softmax within its clusters."""

import numpy as np
import pytest

from lra.models.routing import Mixer
from tests.helpers import mixer_oracle, sparse_oracle


def _norm(xp, x):
  x = x - x.mean(-1, keepdims=True)
  return x / xp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def _kmeans(x, centroids, iterations):
  """Updates centroids [C, Dh] from x [T, Dh], vector by vector."""
  for _ in range(iterations):
    sums = np.zeros_like(centroids)
    for vector in x:
      sums[np.argmax(centroids @ vector)] += vector
    size = np.linalg.norm(sums, axis=1, keepdims=True)
    centroids = np.where(size > 0, sums / np.where(size > 0, size, 1),
                         centroids)
  return centroids


def members_of(params, directions, x, mask, mixer):
  """Returns the clusters of queries and of keys, each bool [C, B, H, L]."""
  q, k = (_norm(np, mixer_oracle.heads(np, np.float64(x), params[name]))
          [:, :, mixer.local_heads:] for name in ('query', 'key'))
  B, L, H, _ = q.shape
  members = np.zeros((2, mixer.num_clusters, B, H, L), bool)
  for b, h in np.ndindex(B, H):
    at = np.flatnonzero(mask[b])
    centroids = _kmeans(
        np.concatenate([q[b, at, h], k[b, at, h]]), np.float64(directions[h]),
        mixer.iterations)
    for c, centroid in enumerate(centroids):
      for kind, y in enumerate((q, k)):
        order = np.argsort(-(y[b, at, h] @ centroid))
        members[kind, c, b, h, at[order[:mixer.cluster_size]]] = True
  return members


def _oracle(members, mixer):
  local = mixer.local_heads
  near = sparse_oracle.matrix(61, lambda i, j: abs(i - j) <= mixer.radius)

  def oracle(xp, params, x, mask):
    q, k, v = mixer_oracle.qkv(xp, x, params)
    o = [sparse_oracle.attend(
        xp, q[:, :, :local], k[:, :, :local], v[:, :, :local],
        near & mask[:, None, None, :])]
    queries, keys = members
    # The oracle divides logits by sqrt(Dh); algorithm 1 does not.
    undone = 1 if mixer.scaled else q.shape[-1]**0.5
    total = sum(sparse_oracle.attend(
        xp, undone * _norm(xp, q[:, :, local:]), _norm(xp, k[:, :, local:]),
        v[:, :, local:], queries[c][..., None] & keys[c][..., None, :])
                for c in range(len(queries)))
    times = queries.sum(0).swapaxes(1, 2)[..., None]
    o.append(total / np.maximum(times, 1))
    return mixer_oracle.merge(xp, xp.concatenate(o, 2), params['out'])

  return oracle


@pytest.mark.full
@pytest.mark.parametrize('local,clusters,size,scaled', [
    (1, 4, 9, False), mixer_oracle.full(0, 3, 30, False),
    mixer_oracle.full(1, 4, 9, True)])
def test_equals_softmax_within_the_clusters(local, clusters, size, scaled):
  x, mask = mixer_oracle.ragged(*sparse_oracle.LENGTHS, width=12)
  mixer = Mixer(num_heads=3 if local else 2, qkv_width=12, local_heads=local,
                num_clusters=clusters, cluster_size=size, radius=5,
                scaled=scaled)
  variables = mixer_oracle.init(mixer, x, mask)
  members = members_of(
      variables['params'], variables['constants']['directions'], x, mask, mixer)
  times = members[0].sum(0)[0]
  assert times.min() == 0 and times.max() > 1
  mixer_oracle.check(mixer, _oracle(members, mixer), x, mask,
                     variables=variables)
