"""Chunk formulas of linear attention with one gate for each token and head.

With c_i the sum of the log decays of a chunk's rows 0 ... i and S the state in
front of it,

  o_i = sum_{j <= i} exp(c_i - c_j) (q_i . k_j) v_j + exp(c_i) q_i S
  S' = exp(c_(C - 1)) S + sum_j exp(c_(C - 1) - c_j) k_j^T v_j.

All exponents are at most 0. Source: Mamba-2 (arXiv 2405.21060), section 6.
The gradient of c_i is o_i . do_i - v_i . dv_i, for each head alone.

Shapes: B batch, N chunks, C rows of a chunk, G groups of R heads, H = G R, D
width of q and k, E width of v. Heads of a group share q and k.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from kernels import products

# exp(-104) is 0 in float32.
LEAST = -104.0


class Decays(NamedTuple):
  """Sums of log decays, float32.

  Attributes:
    since: from the start of the chunk to each row, [B, N, C, H].
    total: of the chunk, [B, N, H, 1].
  """
  since: jax.Array
  total: jax.Array

  def within(self):
    """Returns exp(c_i - c_j) for i >= j, else 0: [B, N, H, C, C]."""
    c = jnp.moveaxis(self.since, 3, 2)
    i = jnp.arange(c.shape[-1])
    return jnp.exp(jnp.where((i[:, None] >= i[None])[None, None, None],
                             c[..., :, None] - c[..., None, :], -jnp.inf))

  def from_start(self):
    """Returns exp(c_i), [B, N, C, H, 1]."""
    return jnp.exp(self.since)[..., None]

  def to_end(self):
    """Returns exp(c_(C - 1) - c_j), [B, N, C, H, 1]."""
    return jnp.exp(self.since[:, :, -1:] - self.since)[..., None]


def decays(g_BxNxCxH):
  since = jnp.cumsum(jnp.maximum(g_BxNxCxH, LEAST), 2)
  return Decays(since, since[:, :, -1, :, None])


def into_state(k, v, decay):
  """Returns sum_j exp(c_(C - 1) - c_j) k_j^T v_j, [B, N, H, D, E]."""
  return _outer(k, weighed(v, decay.to_end()))


def into_gradient(q, do, decay):
  """Returns the gradient of S through the chunk's outputs."""
  return _outer(q, weighed(do, decay.from_start()))


def outputs(q, k, v, decay, before):
  """Returns o, float32 [B, N, C, H, E]."""
  weights = (_scores(q, k, v) * decay.within()).astype(v.dtype)
  o = products.einsum('bnhij,bnjhe->bnihe', weights, v)
  return o + _read(q, before) * decay.from_start()


def gradients(q, k, v, decay, before, dafter, do):
  """Returns float32 gradients of q, k, v and the log decays.

  `dafter` is the gradient of S', `do` that of o; S is `before`.
  """
  dtype, groups = v.dtype, q.shape[3]
  within, start, end = decay.within(), decay.from_start(), decay.to_end()
  weights = _scores(q, k, v) * within
  dweights = products.einsum('bnihe,bnjhe->bnhij', do, v)
  dv = products.einsum('bnhij,bnihe->bnjhe', weights.astype(dtype), do)
  dv_end = _read(k, dafter) * end
  dscores = _grouped(dweights * within, 2, groups).sum(3).astype(dtype)
  do_start, v_end = weighed(do, start), weighed(v, end)
  dq = (products.einsum('bngij,bnjgd->bnigd', dscores, k)
        + _read_back(do_start, before, groups))
  dk = (products.einsum('bngij,bnigd->bnjgd', dscores, q)
        + _read_back(v_end, dafter, groups))
  both = weights * dweights
  dc = jnp.moveaxis(both.sum(4) - both.sum(3), 2, 3)
  to_end = (dv_end * v.astype(jnp.float32)).sum(-1)
  dc += (_read(q, before) * start * do.astype(jnp.float32)).sum(-1) - to_end
  last = to_end.sum(2) + jnp.exp(decay.total[..., 0]) * (
      before * dafter).sum((3, 4))
  dg = jnp.flip(jnp.cumsum(jnp.flip(dc, 2), 2), 2) + last[:, :, None]
  return dq, dk, dv + dv_end, dg


def weighed(x, factor):
  """Returns x times float32 factors, rounded to the dtype of x."""
  return (x.astype(jnp.float32) * factor).astype(x.dtype)


def _grouped(x, axis, groups):
  """Splits an axis of heads into groups: H -> G, R."""
  shape = *x.shape[:axis], groups, -1, *x.shape[axis + 1:]
  return x.reshape(shape)


def _heads(x, axis):
  """Joins the axes G, R at `axis`."""
  return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2:])


def _scores(q, k, v):
  """Returns q_i . k_j for each head, [B, N, H, C, C]; equal within a group."""
  scores = products.einsum('bnigd,bnjgd->bngij', q, k)
  return jnp.repeat(scores, v.shape[3] // q.shape[3], axis=2)


def _outer(x, y):
  """Returns sum_i x_i^T y_i, [B, N, H, D, E]."""
  y = _grouped(y, 3, x.shape[3])
  return _heads(products.einsum('bnigd,bnigre->bngrde', x, y), 2)


def _read(x, state):
  """Returns x_i S, [B, N, C, H, E]."""
  state = _grouped(state, 2, x.shape[3]).astype(x.dtype)
  return _heads(products.einsum('bnigd,bngrde->bnigre', x, state), 3)


def _read_back(y, state, groups):
  """Returns y_i S^T, summed over the heads of a group: [B, N, C, G, D]."""
  state = _grouped(state, 2, groups).astype(y.dtype)
  return products.einsum(
      'bnigre,bngrde->bnigd', _grouped(y, 3, groups), state)
