"""Routing Transformer: attention within clusters of queries and keys.

Each cluster takes the w queries and the w keys nearest to its centroid, even if
another centroid is nearer to them. A query in several clusters receives the
mean of their outputs, a query in none receives 0. As in the paper, some heads
see a window instead, and clustering has no gradient.

The paper has one set of centroids for all sequences, updated by a running
average over training tokens, and its code a loss that pulls them to the tokens.
Here each sequence has its own centroids, which take a few steps of k-means over
its tokens from random directions. The authors' code divides logits by sqrt(Dh),
but its normalisation undoes that; with `scaled`, as in other implementations,
the weights of a newly initialised model are nearly equal.

Equation: mean over { c : i in Q_c } of the softmax over { j in K_c } of
  q_i k_j, of values v_j; Q_c, K_c the w tokens with the largest mu_c q_i,
  mu_c k_j, q and k after LayerNorm without parameters
Source: Roy et al. 2020, arXiv 2003.05997, section 4.1 and algorithm 1
"""

import jax
import jax.numpy as jnp

from lra.core.errors import UserError
from lra.models import About
from lra.nn import block_sparse, layers, norm, partials
from lra.nn.block_sparse import Heads
from lra.nn.mixer import AttentionMixer
from lra.nn.patterns import sliding_window
from lra.schema import fields

ABOUT = About(
    'sparse',
    'O(L c D + c w^2 D) for c clusters of w: O(L sqrt(L) D) at its best',
    time=1.5, memory=1.5)


class Mixer(AttentionMixer):
  num_clusters: int = fields.count(64, 'Number of clusters, c.')
  cluster_size: int = fields.count(
      64, 'Number of queries and of keys in a cluster, w; the paper takes L / '
      'c.')
  iterations: int = fields.argument(
      3, 'Number of steps of k-means.', low=0, high=1000)
  local_heads: int = fields.count(
      0, 'Number of first heads, less than all, that attend within a window '
      'instead of clusters.', low=0)
  radius: int = fields.count(
      64, 'Number of positions that local heads see on either side.', low=0)
  scaled: bool = fields.argument(
      False, 'Whether logits within clusters are divided by sqrt(Dh).')

  def mix(self, q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, *, train):
    local, L = self.local_heads, mask_BxL.shape[1]
    if local >= self.num_heads:
      raise UserError(
          f'config.model.local_heads={local} leaves none of '
          f'config.model.num_heads={self.num_heads} to route: choose fewer.')
    qkv = Heads(q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh)
    near, far = (Heads(*(x[:, :, part] for x in qkv)) for part in (
        slice(local), slice(local, None)))
    o_BxLxHxDh = clustered_attention(
        *(norm.standardise(y, norm.EPS).astype(y.dtype)
          for y in (far.q, far.k)), far.v, mask_BxL,
        self._directions(far.q.shape), self.cluster_size, self.iterations,
        far.q.shape[-1]**-0.5 if self.scaled else 1.0)
    if not local:
      return o_BxLxHxDh
    near_BxLxHxDh = block_sparse.attend(
        near, mask_BxL, sliding_window(min(self.radius, L)))
    return jnp.concatenate([near_BxLxHxDh, o_BxLxHxDh], 2)

  def _directions(self, shape):
    """Returns the initial centroids, [H, C, Dh]."""
    *_, H, Dh = shape
    return self.variable(
        'constants', 'directions', lambda: layers.unit(jax.random.normal(
            self.make_rng('params'), (H, self.num_clusters, Dh)))).value


def clustered_attention(
    q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh, mask_BxL, directions_HxCxDh, size: int,
    iterations: int, scale: float) -> jax.Array:
  """Attends within clusters of normalised queries and keys: like `v`.

  A cluster has at most `size` queries and keys; padding is in no cluster. Steps
  of k-means move the centroids from their initial directions. The result is 0
  at queries in no cluster; `scale` is the factor of logits.
  """
  B, L, H, _ = q_BxLxHxDh.shape
  C, size = directions_HxCxDh.shape[1], min(size, L)

  def one_head(qkv, directions_CxDh):
    def sequence(qkv, mask_L):
      centroids_CxDh = kmeans(
          jnp.concatenate([qkv.q, qkv.k]), jnp.tile(mask_L, 2),
          directions_CxDh, iterations)
      return _sequence(qkv, mask_L, centroids_CxDh, size, scale)

    return jax.vmap(sequence)(qkv, mask_BxL)

  o_HxBxLxDh = partials.over_heads(
      one_head, Heads(*(jnp.moveaxis(x, 2, 0) for x in (
          q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh))),
      directions_HxCxDh, num_logits=B * H * C * (size**2 + L))
  return jnp.moveaxis(o_HxBxLxDh, 0, 2)


def kmeans(x_TxDh, mask_T, centroids_CxDh, iterations: int) -> jax.Array:
  """Computes spherical k-means: centroids of length 1, float32; no gradient.

  Each vector belongs to the centroid with the largest dot product. A centroid
  moves to the direction of the sum of its vectors; one without vectors stays.
  """
  x_TxDh = jnp.where(mask_T[:, None], jax.lax.stop_gradient(
      x_TxDh.astype(jnp.float32)), 0)

  def step(_, centroids_CxDh):
    scores_TxC = x_TxDh @ centroids_CxDh.T
    own_TxC = scores_TxC == scores_TxC.max(1, keepdims=True)
    own_TxC &= mask_T[:, None]
    sums_CxDh = own_TxC.astype(jnp.float32).T @ x_TxDh
    return jnp.where(
        own_TxC.any(0)[:, None], layers.unit(sums_CxDh), centroids_CxDh)

  return jax.lax.fori_loop(0, iterations, step, centroids_CxDh)


def _sequence(qkv, mask_L, centroids_CxDh, size, scale):
  """Attends in one head of one sequence: [L, Dh]."""

  def nearest(x_LxDh):
    scores_CxL = centroids_CxDh @ jax.lax.stop_gradient(
        x_LxDh.astype(jnp.float32)).T
    return jax.lax.top_k(
        jnp.where(mask_L[None], scores_CxL, -jnp.inf), size)[1]

  queries_CxW, keys_CxW = nearest(qkv.q), nearest(qkv.k)
  part = partials.partial_softmax(
      qkv.q[queries_CxW], qkv.k[keys_CxW], qkv.v[keys_CxW],
      scale=scale, bias=partials.forbid(mask_L[keys_CxW])[:, None])
  here_CxW = mask_L[queries_CxW]
  o_CxWxDh = jnp.where(here_CxW[..., None], partials.normalise(part), 0)
  sum_LxDh = jnp.zeros(qkv.q.shape, jnp.float32).at[queries_CxW].add(o_CxWxDh)
  times_L = jnp.zeros(mask_L.shape, jnp.float32).at[queries_CxW].add(
      here_CxW.astype(jnp.float32))
  return (sum_LxDh / jnp.maximum(times_L, 1)[:, None]).astype(qkv.v.dtype)
