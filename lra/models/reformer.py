"""Reformer: attention within buckets of similar positions (LSH attention).

Queries and keys share one projection; keys are scaled to length 1. Positions
are sorted by bucket and cut into chunks. Each attends to positions of its
bucket in its own chunk and the chunk before. Several rounds of hashing are
merged into one softmax: a key seen in N rounds counts 1/N in each. A position
sees itself only if it sees nothing else. Each training step draws new
rotations; evaluation uses those of initialisation.

The LRA release has one round, ten buckets, keys of any length, logits
multiplied by sqrt(Dh), fixed rotations and no output projection. It ignores
buckets, padding and self-attention within a chunk, and its first chunk sees the
last. The authors' code, and thus that of transformers, lets all tokens of
neighbouring chunks see each other.

Equation: softmax over the union over rounds r of { j : h_r(j) = h_r(i) and
  chunk_r(i) - chunk_r(j) in {0, 1} } without i of q_i q_j / (|q_j| sqrt(Dh)),
  h_r(x) = argmax([x R_r, -x R_r])
Source: Kitaev et al. 2020, arXiv 2001.04451, section 2 and eq. 2-4
"""

import jax
import jax.numpy as jnp

from lra.core.errors import UserError
from lra.models import About
from lra.nn import draws, layers, partials
from lra.nn.block_sparse import neighbours
from lra.nn.mixer import AttentionMixer
from lra.schema import fields

ABOUT = About('sparse', 'O(L rounds (chunk D + log L + num_buckets D))')

SELF = -1e5  # added to a position's logit with itself (Kitaev et al.)


class Mixer(AttentionMixer):
  rounds: int = fields.argument(
      4, 'Number of rounds of hashing.', low=1, high=256)
  chunk_size: int = fields.count(64, 'Number of positions in a chunk.')
  num_buckets: int = fields.count(
      64, 'Number of buckets of the hash; must be even. The paper takes 2 L / '
      'chunk_size.', low=2)

  def project(self, x_BxLxD):
    qk_BxLxHxDh = self.heads(x_BxLxD, 'query_key')
    return qk_BxLxHxDh, qk_BxLxHxDh, self.heads(x_BxLxD, 'value')

  def mix(self, qk_BxLxHxDh, _, v_BxLxHxDh, mask_BxL, *, train):
    if self.num_buckets % 2:
      raise UserError('config.model.num_buckets must be even.')
    buckets_BxHxRxL = hash_buckets(
        qk_BxLxHxDh, self._rotations(qk_BxLxHxDh.shape[-1], train))
    return lsh_attention(
        qk_BxLxHxDh, v_BxLxHxDh, mask_BxL, buckets_BxHxRxL, self.chunk_size)

  def _rotations(self, head_width, train):
    shape = (self.num_heads, self.rounds, head_width, self.num_buckets // 2)
    return draws.kept(
        self, 'rotations', lambda key: jax.random.normal(key, shape), train)


def hash_buckets(x_BxLxHxDh, rotations_HxRxDhxM) -> jax.Array:
  """Hashes to buckets 0 .. 2M - 1, int32 [B, H, R, L], by R random rotations.

  Nearby directions often share a bucket (Andoni et al. 2015, arXiv 1509.02897).
  """
  rotated_BxHxRxLxM = jnp.einsum(
      'blhd,hrdm->bhrlm', jax.lax.stop_gradient(x_BxLxHxDh).astype(jnp.float32),
      rotations_HxRxDhxM)
  # argmax([x, -x]), written out because XLA's argmax is slow on a CPU.
  M = rotated_BxHxRxLxM.shape[-1]
  top = jnp.abs(rotated_BxHxRxLxM).max(-1, keepdims=True)
  index_1x1x1x1xM = jnp.arange(M, dtype=jnp.int32)[None, None, None, None]
  return jnp.where(
      rotated_BxHxRxLxM == top, index_1x1x1x1xM,
      jnp.where(rotated_BxHxRxLxM == -top, M + index_1x1x1x1xM, 0)).max(-1)


def lsh_attention(qk_BxLxHxDh, v_BxLxHxDh, mask_BxL, buckets_BxHxRxL,
                  chunk: int) -> jax.Array:
  """Attends within given buckets and neighbouring chunks: like `v`.

  Normalised queries are the keys. Buckets are int32, one for each round, from 0
  to less than 2**30 / L. Padding is not attended to; the result there is 0.
  """
  B, L, H, _ = v_BxLxHxDh.shape
  R = buckets_BxHxRxL.shape[2]

  def one_head(qk_BxLxDh, v_BxLxDh, buckets_BxRxL):
    return jax.vmap(lambda *x: _sequence(*x, chunk))(
        qk_BxLxDh, v_BxLxDh, mask_BxL, buckets_BxRxL)

  o_HxBxLxDh = partials.over_heads(
      one_head, jnp.moveaxis(qk_BxLxHxDh, 2, 0), jnp.moveaxis(v_BxLxHxDh, 2, 0),
      jnp.moveaxis(buckets_BxHxRxL, 1, 0), num_logits=B * H * R * L * 2 * chunk)
  return jnp.moveaxis(o_HxBxLxDh, 0, 2)


def _sequence(qk_LxDh, v_LxDh, mask_L, buckets_RxL, chunk):
  """Attends in one head of one sequence, padded to P whole chunks: [L, Dh]."""
  L, R = mask_L.shape[0], buckets_RxL.shape[0]
  qk_PxDh, v_PxDh, mask_P = (
      jnp.pad(x, [(0, -L % chunk)] + [(0, 0)] * (x.ndim - 1))
      for x in (qk_LxDh, v_LxDh, mask_L))
  buckets_RxP = jnp.where(
      mask_P[None], jnp.pad(buckets_RxL, ((0, 0), (0, -L % chunk))),
      2**30 // len(mask_P))
  order_RxP, slot_RxP = _sort(buckets_RxP)
  sorted_qk_RxPxDh = qk_PxDh[order_RxP]
  part = partials.partial_softmax(
      _chunks(sorted_qk_RxPxDh, chunk),
      _with_previous(layers.unit(sorted_qk_RxPxDh), chunk),
      _with_previous(v_PxDh[order_RxP], chunk),
      bias=_bias(order_RxP, slot_RxP, buckets_RxP, mask_P, chunk))
  rounds = [jax.tree.map(lambda x: x[r].reshape(-1, *x.shape[3:])[slot_RxP[r]],
                         part) for r in range(R)]
  out_PxDh = partials.normalise(partials.merge(rounds))
  return jnp.where(mask_P[:, None], out_PxDh, 0)[:L].astype(v_LxDh.dtype)


def _sort(buckets_RxL):
  """Returns (order, slot), int32 [R, L]: positions by bucket, and its inverse.
  """
  L = buckets_RxL.shape[-1]
  order_RxL = jnp.sort(buckets_RxL * L + jnp.arange(L)[None]) % L
  slot_RxL = jax.vmap(lambda order_L: jnp.zeros_like(order_L).at[order_L].set(
      jnp.arange(L), unique_indices=True))(order_RxL)
  return order_RxL, slot_RxL


def _chunks(x_RxL, chunk):
  R, _, *rest = x_RxL.shape
  return x_RxL.reshape(R, -1, chunk, *rest)


def _with_previous(x_RxL, chunk):
  """Joins each chunk with the previous one: [R, L / chunk, 2 chunk, ...]."""
  return neighbours(_chunks(x_RxL, chunk), (-1, 0))


def _bias(order_RxL, slot_RxL, buckets_RxL, mask_L, chunk):
  """Returns the bias of sorted logits, [R, L / chunk, chunk, 2 chunk]."""
  def pairs(compare, x_RxL):
    return compare(_chunks(x_RxL, chunk)[..., :, None],
                   _with_previous(x_RxL, chunk)[..., None, :])

  allowed = pairs(jnp.equal, jnp.take_along_axis(buckets_RxL, order_RxL, 1))
  allowed &= _with_previous(mask_L[order_RxL], chunk)[..., None, :]
  # `times` counts the rounds in which i sees j: equal buckets, and chunks 0 or
  # 1 apart. Both conditions are one comparison of numbers whose last digit is
  # the chunk: they must differ by 0 or 1.
  digits_RxL = buckets_RxL * (len(mask_L) // chunk + 2) + slot_RxL // chunk
  times = 0.0
  for digits_L in digits_RxL if len(digits_RxL) > 1 else ():
    apart = pairs(jnp.subtract, digits_L[order_RxL])
    times += ((apart == 0) | (apart == 1)).astype(jnp.float32)
  itself = pairs(jnp.equal, order_RxL).astype(jnp.float32)
  return (partials.forbid(allowed) + SELF * itself -
          jnp.log(jnp.maximum(times, 1)))
