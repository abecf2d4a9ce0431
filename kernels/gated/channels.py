"""Chunk formulas of linear attention with a gate for each token and channel.

A chunk is halved again and again, down to blocks of a few rows. If tokens i > j
are in different blocks, exactly one larger block has j in its first half and i
in its second. With m the last row of its first half and g the log decays,

  exp(sum_{j < t <= i} g_t) = exp(sum_{m < t <= i} g_t)
                              exp(sum_{j < t <= m} g_t),

so that q_i times the first factor and k_j times the second give the pair's
weight as a matmul. All factors are at most 1, whatever the gates are. Within
the smallest blocks each pair and channel has an exponential of its own, as in
GLA (arXiv 2312.06635, section 4.3), which has two levels.

The gradient of sum_{t <= i} g_t is q_i dq_i - k_i dk_i, channel by channel.

Shapes: B batch, N chunks, C rows of a chunk, H heads, D width of q and k, E
width of v; X counts the blocks of an array. Functions are those of `scalar`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels import dispatch, xla
from lra.kernels.gated import scalar
from lra.kernels.xla import einsum, halves, weighed

BLOCK = 8  # rows of the smallest blocks


def chunk():
  """Returns the number of rows of a chunk.

  On a CPU smaller chunks, with fewer levels, compile faster and run no slower.
  Elsewhere larger chunks write fewer states.
  """
  return 16 if dispatch.platform() == 'cpu' else 32


class Decays(NamedTuple):
  """Sums of log decays: `xla.doubled_sums`, and those of chunks, [B, N, H, D].
  """
  since: tuple
  until: tuple
  total: jax.Array

  def halves(self):
    """Yields (h, factors of queries, factors of keys) for blocks of 2 h rows.

    They are [X, h, D], for queries in the second half, keys in the first.
    """
    for n, (since, until) in enumerate(zip(self.since[:-1], self.until[:-1],
                                           strict=True)):
      if 1 << n >= BLOCK:
        yield (1 << n, jnp.exp(halves(since, 1 << n)[1]),
               jnp.exp(halves(until, 1 << n)[0]))

  def within(self):
    """Returns factors of pairs i > j in the smallest blocks, [X, b, b, D]."""
    rows = min(BLOCK, 1 << (len(self.since) - 1))
    since = _blocks(self.since[rows.bit_length() - 1], rows)
    i = jnp.arange(rows)
    return jnp.exp(jnp.where(
        (i[:, None] > i[None])[None, :, :, None],
        since[:, :, None] - since[:, None], -jnp.inf))


def decays(g_BxNxHxCxD):
  g = jnp.maximum(g_BxNxHxCxD, scalar.LEAST)
  since, until = zip(*xla.doubled_sums(g), strict=True)
  return Decays(since, until, since[-1][:, :, :, -1])


def into_state(k, v, decay):
  return einsum('bnhid,bnhie->bnhde', weighed(k, jnp.exp(decay.until[-1])), v)


def into_gradient(q, do, decay):
  return einsum('bnhid,bnhie->bnhde', weighed(q, jnp.exp(decay.since[-1])), do)


def outputs(q, k, v, decay, before):
  q_start = weighed(q, jnp.exp(decay.since[-1]))
  o = einsum('bnhid,bnhde->bnhie', q_start, before.astype(q.dtype))
  _, _, weights = _block_weights(q, k, v, decay.within())
  o += einsum('xij,xje->xie', weights,
              _blocks(v, weights.shape[1])).reshape(o.shape)
  o += _own(q, k) * v.astype(jnp.float32)
  for h, to_q, to_k in decay.halves():
    q_h, k_h = weighed(halves(q, h)[1], to_q), weighed(halves(k, h)[0], to_k)
    weights = einsum('xid,xjd->xij', q_h, k_h).astype(v.dtype)
    part = einsum('xij,xje->xie', weights, halves(v, h)[0])
    o += _joined(jnp.zeros_like(part), part, o)
  return o


def gradients(q, k, v, decay, before, dafter, do):
  dtype = v.dtype
  start, end = jnp.exp(decay.since[-1]), jnp.exp(decay.until[-1])
  dafter_e, before_e = dafter.astype(dtype), before.astype(dtype)
  dq = start * einsum('bnhie,bnhde->bnhid', do, before_e)
  dk_end = end * einsum('bnhie,bnhde->bnhid', v, dafter_e)
  dv = einsum('bnhid,bnhde->bnhie', weighed(k, end), dafter_e)
  dk = dk_end
  for parts in (_block_gradients, _half_gradients):
    part_q, part_k, part_v = parts(q, k, v, decay, do)
    dq, dk, dv = dq + part_q, dk + part_k, dv + part_v
  q, k, v, do = (x.astype(jnp.float32) for x in (q, k, v, do))
  last = (k * dk_end).sum(3) + jnp.exp(decay.total) * (before * dafter).sum(4)
  dg = scalar.behind(q * dq - k * dk) + last[:, :, :, None]
  own = _own(v, do)
  return dq + own * k, dk + own * q, dv + _own(q, k) * do, dg


def _block_weights(q, k, v, within):
  q_b, k_b = (_blocks(x.astype(jnp.float32), within.shape[1]) for x in (q, k))
  weights = (q_b[:, :, None] * k_b[:, None] * within).sum(-1).astype(v.dtype)
  return q_b, k_b, weights


def _block_gradients(q, k, v, decay, do):
  within = decay.within()
  q_b, k_b, weights = _block_weights(q, k, v, within)
  v_b, do_b = (_blocks(x, within.shape[1]) for x in (v, do))
  dweights = einsum('xie,xje->xij', do_b, v_b)[..., None] * within
  dq = (dweights * k_b[:, None]).sum(2)
  dk = (dweights * q_b[:, :, None]).sum(1)
  dv = einsum('xij,xie->xje', weights, do_b)
  return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


def _half_gradients(q, k, v, decay, do):
  dtype, (dq, dk, dv) = v.dtype, (
      jnp.zeros(x.shape, jnp.float32) for x in (q, k, v))
  for h, to_q, to_k in decay.halves():
    q_h, k_h = weighed(halves(q, h)[1], to_q), weighed(halves(k, h)[0], to_k)
    v_h, do_h = halves(v, h)[0], halves(do, h)[1]
    weights = einsum('xid,xjd->xij', q_h, k_h).astype(dtype)
    dweights = einsum('xie,xje->xij', do_h, v_h).astype(dtype)
    part_q = to_q * einsum('xij,xjd->xid', dweights, k_h)
    part_k = to_k * einsum('xij,xid->xjd', dweights, q_h)
    part_v = einsum('xij,xie->xje', weights, do_h)
    dq += _joined(jnp.zeros_like(part_q), part_q, dq)
    dk += _joined(part_k, jnp.zeros_like(part_k), dk)
    dv += _joined(part_v, jnp.zeros_like(part_v), dv)
  return dq, dk, dv


def _own(q, k):
  """Returns q_i . k_i, float32 [B, N, H, C, 1]."""
  return (q.astype(jnp.float32) * k.astype(jnp.float32)).sum(-1, keepdims=True)


def _blocks(x, rows):
  return x.reshape(-1, rows, x.shape[-1])


def _joined(first, second, like):
  return jnp.stack([first, second], 1).reshape(like.shape)
