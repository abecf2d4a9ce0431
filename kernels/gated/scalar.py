"""Chunk formulas of linear attention with one gate for each token and head.

With c_i the sum of the log decays of a chunk's rows 0 ... i and S the state in
front of it,

  o_i = sum_{j <= i} exp(c_i - c_j) (q_i . k_j) v_j + exp(c_i) q_i S
  S' = exp(c_(C - 1)) S + sum_j exp(c_(C - 1) - c_j) k_j^T v_j.

All exponents are at most 0. Source: Mamba-2 (arXiv 2405.21060), section 6.
For each head the gradient of c_i is o_i . do_i - v_i . dv_i.

Shapes: B batch, N chunks, C rows of a chunk, G groups of R heads, H = G R, D
width of q and k, E width of v. Heads of a group share q and k.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lra.kernels.xla import einsum, weighed

# Smallest log decay used: exp(-104) is 0 in float32.
LEAST = -104.0


def chunk():
  return 64


class Decays(NamedTuple):
  """Sums of log decays up to each row, [B, N, H, C], and of chunks, [.., 1]."""
  since: jax.Array
  total: jax.Array

  def within(self):
    """Returns exp(c_i - c_j) for i >= j, else 0: [B, N, H, C, C]."""
    i = jnp.arange(self.since.shape[-1])
    return jnp.exp(jnp.where(
        (i[:, None] >= i[None])[None, None, None],
        self.since[..., :, None] - self.since[..., None, :], -jnp.inf))

  def from_start(self):
    """Returns exp(c_i), [B, N, H, C, 1]."""
    return jnp.exp(self.since)[..., None]

  def to_end(self):
    """Returns exp(c_(C - 1) - c_j), [B, N, H, C, 1]."""
    return jnp.exp(self.total - self.since)[..., None]


def decays(g_BxNxHxC):
  since = jnp.cumsum(jnp.maximum(g_BxNxHxC, LEAST), 3)
  return Decays(since, since[..., -1:])


def into_state(k, v, decay):
  """Returns each chunk's addition to the state, [B, N, H, D, E]."""
  return _outer(k, weighed(v, decay.to_end()))


def into_gradient(q, do, decay):
  """Returns the gradient of the state before each chunk from its outputs."""
  return _outer(q, weighed(do, decay.from_start()))


def outputs(q, k, v, decay, before):
  """Returns the outputs o, float32 [B, N, H, C, E], from states `before`."""
  weights = _each(_scores(q, k), v) * decay.within()
  o = einsum('bnhij,bnhje->bnhie', weights.astype(v.dtype), v)
  return o + _read(q, before) * decay.from_start()


def gradients(q, k, v, decay, before, dafter, do):
  """Returns float32 gradients of q, k, v and the log decays.

  `before` is the state before each chunk, `dafter` the gradient after it.
  """
  dtype = v.dtype
  within, start, end = decay.within(), decay.from_start(), decay.to_end()
  weights = _each(_scores(q, k), v) * within
  dweights = einsum('bnhie,bnhje->bnhij', do, v)
  dv = einsum('bnhij,bnhie->bnhje', weights.astype(dtype), do)
  dv_end = _read(k, dafter) * end
  dscores = _grouped(dweights * within, q).sum(3).astype(dtype)
  do_start, v_end = weighed(do, start), weighed(v, end)
  dq = einsum('bngij,bngjd->bngid', dscores, k) + _read_back(
      do_start, before, q)
  dk = einsum('bngij,bngid->bngjd', dscores, q) + _read_back(v_end, dafter, k)
  both = weights * dweights
  to_end = (dv_end * v.astype(jnp.float32)).sum(-1)
  dc = both.sum(4) - both.sum(3) - to_end
  dc += (_read(q, before) * start * do.astype(jnp.float32)).sum(-1)
  last = to_end.sum(3, keepdims=True) + jnp.exp(decay.total) * (
      before * dafter).sum((3, 4))[..., None]
  return dq, dk, dv + dv_end, behind(dc) + last


def behind(dc):
  """Returns the sums of dc over each row and the rows after it, axis 3."""
  return jnp.flip(jnp.cumsum(jnp.flip(dc, 3), 3), 3)


def _grouped(x, like):
  """Splits the axis of heads into groups: [B, N, G, R, ...]."""
  return x.reshape(*like.shape[:3], -1, *x.shape[3:])


def _each(x_BxNxGxCxC, like):
  """Repeats the numbers of a group for each of its heads: [B, N, H, C, C]."""
  return jnp.repeat(
      x_BxNxGxCxC, like.shape[2] // x_BxNxGxCxC.shape[2], axis=2)


def _scores(q, k):
  return einsum('bngid,bngjd->bngij', q, k)


def _outer(x, y):
  """Returns sum_i x_i^T y_i, [B, N, H, D, E]."""
  return _heads(einsum('bngid,bngrie->bngrde', x, _grouped(y, x)))


def _read(x, state):
  """Returns x_i S, [B, N, H, C, E]."""
  return _heads(einsum('bngid,bngrde->bngrie', x,
                       _grouped(state, x).astype(x.dtype)))


def _read_back(y, state, like):
  """Returns y_i S^T, summed over the heads of a group: [B, N, G, C, D]."""
  state = _grouped(state, like).astype(y.dtype)
  return einsum('bngrie,bngrde->bngid', _grouped(y, like), state)


def _heads(x_BxNxGxR):
  return x_BxNxGxR.reshape(*x_BxNxGxR.shape[:2], -1, *x_BxNxGxR.shape[4:])
