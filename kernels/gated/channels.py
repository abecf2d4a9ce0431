"""Chunk formulas of linear attention with a gate for each token and channel.

A chunk is halved again and again. A pair of tokens i > j is in the two halves
of exactly one block. With m the last row of its first half and g the log
decays,

  exp(sum_{j < t <= i} g_t) = exp(sum_{m < t <= i} g_t)
                              exp(sum_{j < t <= m} g_t),

so that q_i times the first factor and k_j times the second give the pair's
weight as a matmul. All factors are at most 1, whatever the gates are, and the
sums have terms of one sign, so no digits are lost. Blocks of two levels as in
GLA (arXiv 2312.06635, section 4.3) need a product of exponentials for each pair
and channel within the smallest blocks.

The gradient of the sum up to row i is q_i dq_i - k_i dk_i, channel by channel.

Shapes: B batch, N chunks, C rows of a chunk, H heads, D width of q and k, E
width of v.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from kernels import products
from kernels.gated.scalar import LEAST, weighed


class Decays(NamedTuple):
  """Sums of log decays in blocks of 1, 2, 4, ... C rows, float32.

  Attributes:
    since: for each size, from the start of the block to each row with it,
      [B, N, C, H, D].
    until: behind each row to the end of the block.
    total: of the chunk, [B, N, H, D].
  """
  since: tuple
  until: tuple
  total: jax.Array

  def halves(self):
    """Returns (h, factors of queries, factors of keys) for each half size h.

    Factors are [B, blocks, h, H, D], of the second and of the first halves.
    """
    sizes = [1 << n for n in range(len(self.since) - 1)]
    return [(h, jnp.exp(_halves(since, h)[:, :, 1]),
             jnp.exp(_halves(until, h)[:, :, 0]))
            for h, since, until in zip(sizes, self.since[:-1], self.until[:-1],
                                       strict=True)]


def decays(g_BxNxCxHxD):
  g = jnp.maximum(g_BxNxCxHxD, LEAST)
  since, until = [g], [jnp.zeros_like(g)]
  for n in range((g.shape[2] - 1).bit_length()):
    first, second = (_halves(since[-1], 1 << n)[:, :, i] for i in (0, 1))
    since.append(_joined(first, second + first[:, :, -1:], g))
    before, behind = (_halves(until[-1], 1 << n)[:, :, i] for i in (0, 1))
    until.append(_joined(before + second[:, :, -1:], behind, g))
  return Decays(tuple(since), tuple(until), since[-1][:, :, -1])


def into_state(k, v, decay):
  """Returns sum_j exp(until_j) k_j^T v_j, [B, N, H, D, E]."""
  k_end = weighed(k, jnp.exp(decay.until[-1]))
  return products.einsum('bnihd,bnihe->bnhde', k_end, v)


def into_gradient(q, do, decay):
  """Returns the gradient of S through the chunk's outputs."""
  q_start = weighed(q, jnp.exp(decay.since[-1]))
  return products.einsum('bnihd,bnihe->bnhde', q_start, do)


def outputs(q, k, v, decay, before):
  """Returns o, float32 [B, N, C, H, E]."""
  q_start = weighed(q, jnp.exp(decay.since[-1]))
  o = products.einsum('bnihd,bnhde->bnihe', q_start, before.astype(q.dtype))
  o += _own(q, k) * v.astype(jnp.float32)
  for h, to_q, to_k in decay.halves():
    q_h = weighed(_halves(q, h)[:, :, 1], to_q)
    k_h = weighed(_halves(k, h)[:, :, 0], to_k)
    weights = products.einsum('bnihd,bnjhd->bnhij', q_h, k_h).astype(v.dtype)
    part = products.einsum('bnhij,bnjhe->bnihe', weights,
                           _halves(v, h)[:, :, 0])
    o += _joined(jnp.zeros_like(part), part, o)
  return o


def gradients(q, k, v, decay, before, dafter, do):
  """Returns float32 gradients of q, k, v and the log decays.

  `dafter` is the gradient of S', `do` that of o; S is `before`.
  """
  dtype = v.dtype
  start, end = jnp.exp(decay.since[-1]), jnp.exp(decay.until[-1])
  dq = start * products.einsum('bnihe,bnhde->bnihd', do, before.astype(dtype))
  dk_end = end * products.einsum('bnihe,bnhde->bnihd', v, dafter.astype(dtype))
  dv = products.einsum('bnihd,bnhde->bnihe', weighed(k, end),
                       dafter.astype(dtype))
  dk = dk_end
  for h, to_q, to_k in decay.halves():
    q_h = weighed(_halves(q, h)[:, :, 1], to_q)
    k_h = weighed(_halves(k, h)[:, :, 0], to_k)
    v_h, do_h = _halves(v, h)[:, :, 0], _halves(do, h)[:, :, 1]
    weights = products.einsum('bnihd,bnjhd->bnhij', q_h, k_h).astype(dtype)
    dweights = products.einsum('bnihe,bnjhe->bnhij', do_h, v_h).astype(dtype)
    part_q = to_q * products.einsum('bnhij,bnjhd->bnihd', dweights, k_h)
    part_k = to_k * products.einsum('bnhij,bnihd->bnjhd', dweights, q_h)
    part_v = products.einsum('bnhij,bnihe->bnjhe', weights, do_h)
    dq += _joined(jnp.zeros_like(part_q), part_q, dq)
    dk += _joined(part_k, jnp.zeros_like(part_k), dk)
    dv += _joined(part_v, jnp.zeros_like(part_v), dv)
  q, k, v, do = (x.astype(jnp.float32) for x in (q, k, v, do))
  last = (k * dk_end).sum(2) + jnp.exp(decay.total) * (before * dafter).sum(4)
  dc = q * dq - k * dk
  dg = jnp.flip(jnp.cumsum(jnp.flip(dc, 2), 2), 2) + last[:, :, None]
  own = _own(v, do)
  return dq + own * k, dk + own * q, dv + _own(q, k) * do, dg


def _own(q, k):
  """Returns q_i . k_i, float32 [B, N, C, H, 1]."""
  return (q.astype(jnp.float32) * k.astype(jnp.float32)).sum(-1, keepdims=True)


def _halves(x, h):
  """Splits rows into blocks of two halves: [B, blocks, 2, h, H, D]."""
  return x.reshape(len(x), -1, 2, h, *x.shape[3:])


def _joined(first, second, like):
  """Inverts `_halves`: returns rows in the shape of `like`."""
  return jnp.stack([first, second], 2).reshape(like.shape)
