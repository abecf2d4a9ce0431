"""Formulas of a chunk: gated linear attention and the delta rules.

A chunk turns the state S before it into outputs O and the state S' after it:

  U = u + w S,  O = q S + weights U + o,  S' = keep S + k^T U + kv

U has a row for each token. In gated linear attention w = 0 and u is v, as in
Mamba-2 (arXiv 2405.21060, section 6) and GLA (arXiv 2312.06635, section 4). In
the delta rules u and w contain the inverse of a triangular matrix: the WY form
of Yang et al. 2024 (arXiv 2406.06484, section 3.2) and, with decays, of arXiv
2412.06464, section 3.3. A delta rule without a and b has -w in place of w.

First all chunks of a segment are prepared in parallel. Then `_walk` finds the
states: the delta rules insert U, so that S' = (keep + k^T w) S + k^T u + kv.
Last, outputs follow from the states, again in parallel.

Shapes: n chunks, B batch, G groups of R heads that share q and k, C tokens, N
width of q and k, E width of v; X = n B G.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels import xla
from lra.kernels.gated.decayed import Sums, decayed, inverse
from lra.kernels.xla import einsum

UNROLL = 32  # turns of the loop over states in one turn of the compiled loop


def segment(scale, state, x):
  """Returns the state after a segment, and outputs [n, B, H, C, E].

  The arrays of x are [n, B, G or H, C, ...]. state is float32 [B, H, N, E].
  """
  form = _gated
  if x.beta is not None or x.a is not None:
    form = _delta if x.a is None else _general
  state, out = form(state, x)
  return state, (scale * out).astype(x.v.dtype)


def _gated(state, x):
  """Returns the last state and float32 outputs, [n, B, H, C, E]."""
  lead, (groups, heads) = x.q.shape[:2], (x.q.shape[2], x.v.shape[2])
  channels = x.log_decay.ndim == 5
  x, sums = _flat(x, heads // groups)
  q, k, v = x.q, x.k, x.v.reshape(-1, heads // groups, *x.v.shape[1:])
  start, weights = 1.0, decayed(q, k, sums, sums).astype(v.dtype)
  if channels:  # decays multiply keys, else values
    added = einsum('xid,xrie->xrde', _end(k, sums), v)
    q, weights = _start(q, sums), weights[:, None]
  else:
    added = einsum('xid,xrie->xrde', k, xla.weighed(v, sums.until()))
    start = sums.since()
  split = lambda y: y.reshape(*lead, heads, *y.shape[2:])
  keep = _keep(sums).reshape(*added.shape[:2], -1, 1)
  before, state = _walk(False, split(keep), split(added), state)
  before = before.astype(v.dtype).reshape(added.shape)
  out = einsum('xid,xrde->xrie', q, before) * start
  return state, split(out + einsum('xrij,xrje->xrie', weights, v))


def _delta(state, x):
  dtype, lead = x.q.dtype, x.q.shape[:3]
  x, sums = _flat(x)
  beta = x.beta[..., None]
  pairs = _pairs(x.k, x.k, sums, sums, strict=True)
  solve = inverse(beta * pairs) * jnp.swapaxes(beta, -1, -2)
  w = _solved(solve, _start(x.k, sums))
  return _affine(state, lead, x, sums, u=_solved(solve, x.v), w=w, sign=-1,
                 k=_end(x.k, sums), kv=None,
                 weights=_pairs(x.q, x.k, sums, sums).astype(dtype), o=None)


def _solved(solve, y):
  """Returns solve y, as if the float32 matrix had twice the digits of y.

  If beta is above 1, entries alternate in sign, up to 4. Errors of 8 bits in
  them would let a state grow that the exact rule keeps bounded.
  """
  spec = 'xij,xjd->xid'
  if y.dtype == jnp.float32:
    return einsum(spec, solve, y)
  high = xla.rounded(solve, y.dtype)
  low = (solve - high).astype(y.dtype)
  return einsum(spec, high.astype(y.dtype), y) + einsum(spec, low, y)


def _general(state, x):
  dtype, lead = x.q.dtype, x.q.shape[:3]
  g = x.log_decay
  x, sums = _flat(x)
  # `a` of token i reads the state after token i - 1.
  at = None if g is None else _sums(g, -1)
  solve = inverse(-_pairs(x.a, x.b, at, sums, strict=True)).astype(dtype)
  times = functools.partial(einsum, 'xij,xje->xie')
  u = times(_pairs(x.a, x.k, at, sums, strict=True).astype(dtype), x.v)
  w = times(solve, _start(x.a, at))
  return _affine(
      state, lead, x, sums, u=times(solve, u.astype(dtype)), w=w, sign=1,
      k=_end(x.b, sums),
      kv=einsum('xid,xie->xde', _end(x.k, sums), x.v),
      weights=_pairs(x.q, x.b, sums, sums).astype(dtype),
      o=times(_pairs(x.q, x.k, sums, sums).astype(dtype), x.v))


def _affine(state, lead, x, sums, *, u, w, sign, k, kv, weights, o):
  """Returns the last state and the outputs of a delta rule."""
  dtype = x.q.dtype
  factor = sign * einsum('xid,xie->xde', k, w.astype(dtype))
  keep = 1.0 if sums is None else _keep(sums).reshape(len(u), -1, 1)
  factor += keep * jnp.eye(factor.shape[-1])[None]
  added = einsum('xid,xie->xde', k, u.astype(dtype))
  added = added if kv is None else added + kv
  split = lambda y: y.reshape(*lead, *y.shape[1:])
  before, state = _walk(True, split(factor), split(added), state)
  before = before.astype(dtype).reshape(added.shape)
  rows = u + sign * einsum('xid,xde->xie', w.astype(dtype), before)
  out = einsum('xid,xde->xie', _start(x.q, sums), before)
  out += einsum('xij,xje->xie', weights, rows.astype(dtype))
  return state, split(out if o is None else out + o)


def _flat(x, heads=1):
  """Joins the first axes of all arrays to X, and returns `_sums`, too."""
  sums = None if x.log_decay is None else _sums(x.log_decay, 0, heads)
  return jax.tree.map(lambda y: y.reshape(-1, *y.shape[3:]), x), sums


def _sums(g, to=0, heads=1):
  """Returns `Sums`, [X, C, N] of channels or [X, R, C, 1] of R = `heads`."""
  shape = g.shape[3:] if g.ndim == 5 else (heads, g.shape[3], 1)
  return Sums.of(g.reshape(-1, *shape), to)


def _keep(sums):
  """Returns the decay over a chunk, [..., N, 1]."""
  return jnp.swapaxes(sums.at(-1).since(), -1, -2)


def _pairs(rows, columns, at, sums, strict=False):
  out = decayed(rows, columns, at, sums, strict)
  return out[:, 0] if out.ndim == 4 else out


def _start(x, sums):
  return x if sums is None else xla.weighed(
      x, sums.since().reshape(*x.shape[:2], -1))


def _end(x, sums):
  return x if sums is None else xla.weighed(
      x, sums.until().reshape(*x.shape[:2], -1))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _walk(matrix, factor, added, state):
  """Returns the states before all chunks, and the last: S' = F S + A.

  F is [n, B, H, N, N] with `matrix`, else it multiplies rows: [n, B, H, N, 1].
  A and the states are [n, B, H, N, E], the first and last state [B, H, N, E].
  """
  def turn(s, x):
    return _apply(matrix, x[0], s) + x[1], s

  last, before = lax.scan(turn, state, (factor, added), unroll=UNROLL)
  return before, last


def _apply(matrix, factor, state):
  if not matrix:
    return factor * state
  return jnp.matmul(factor, state, precision=lax.Precision.HIGHEST)


def _walk_forward(matrix, factor, added, state):
  before, last = _walk(matrix, factor, added, state)
  return (before, last), (factor, before)


def _walk_backward(matrix, saved, ct):
  (factor, before), (dbefore, dlast) = saved, ct
  turned = jnp.swapaxes(factor, -1, -2) if matrix else factor

  def turn(d, x):
    return _apply(matrix, x[0], d) + x[1], d

  first, dadded = lax.scan(turn, dlast, (turned, dbefore), reverse=True,
                           unroll=UNROLL)
  if matrix:
    dfactor = _apply(True, dadded, jnp.swapaxes(before, -1, -2))
  else:
    dfactor = (dadded * before).sum(-1, keepdims=True)
    if factor.shape[-2] == 1:
      dfactor = dfactor.sum(-2, keepdims=True)
  return dfactor, dadded, first


_walk.defvjp(_walk_forward, _walk_backward)
