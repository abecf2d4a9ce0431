"""Formulas of a chunk: gated linear attention and the delta rules.

A chunk turns the state S before it into outputs O and the state S' after it:

  U = u + w S,  O = q S + weights U + o,  S' = keep S + k^T U + kv

U has a row for each token. In gated linear attention w = 0 and u is v, as in
Mamba-2 (arXiv 2405.21060, section 6) and GLA (arXiv 2312.06635, section 4). In
the delta rules u and w contain the inverse of a triangular matrix: the WY form
of Yang et al. 2024 (arXiv 2406.06484, section 3.2) and, with decays, of arXiv
2412.06464, section 3.3. There w has a minus sign, unless the rule has a and b.

First all chunks of a segment are prepared in parallel. Then `_states` finds the
states: the delta rules insert U, so that S' = (keep + k^T w) S + k^T u + kv.
Last, outputs follow from the states, again in parallel. The backward pass finds
the gradients dS' in the same way; gradients of w, u and k follow from dS', S
and U, without one of the matrices keep + k^T w.

Shapes: n chunks, B batch, G groups of R heads that share q and k, C tokens, N
width of q and k, E width of v; X = n B G.
"""

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels.gated.decayed import Sums, decayed, solved, tied
from lra.kernels.xla import einsum

UNROLL = 64  # turns of the loop over states in one turn of the compiled loop


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
  dtype = x.q.dtype
  x, sums = _flat(x, heads // groups)
  q, k, v = x.q, x.k, x.v.reshape(-1, heads // groups, *x.v.shape[1:])
  # Decays multiply keys, but values if several heads share the keys.
  shared = heads > groups
  if shared:
    v = tied(-1, v, sums)
  else:
    q, k = tied(1, q, sums), tied(-1, k, sums)
  weights = decayed(dtype, q, k, sums, sums)
  weights = weights.reshape(*v.shape[:3], -1).astype(dtype)
  if shared:
    ends = v * sums.until()
  else:
    q, k, ends = _start(q, sums), _end(k, sums), v
  added = einsum('xid,xrie->xrde', k, ends)
  split = lambda y: y.reshape(*lead, heads, *y.shape[2:])
  keep, end = map(split, _keep(sums, *added.shape[:2]))
  before, state = _walk(keep, end, split(added), state)
  out = einsum('xid,xrde->xrie', q, before.astype(dtype).reshape(added.shape))
  out = out * sums.since() if shared else out
  out += einsum('xrij,xrje->xrie', weights, v)
  return state, split(tied(1, out, sums) if shared else out)


def _delta(state, x):
  dtype = x.q.dtype
  x, sums = _flat(x)
  beta = x.beta[..., None]
  q, rows, columns = tied(1, x.q, sums), tied(1, x.k, sums), tied(-1, x.k, sums)
  pairs = _pairs(dtype, rows, columns, sums, sums, strict=True)
  w, u = solved(dtype, beta * pairs, beta, (-_start(rows, sums), x.v))
  return _affine(
      dtype, *_keep(sums, len(x.q)), _start(q, sums), _end(columns, sums), w, u,
      _pairs(dtype, q, columns, sums, sums), None, None, state)


def _general(state, x):
  dtype = x.q.dtype
  x, sums = _flat(x)
  # `a` of token i reads the state after token i - 1.
  at = None if sums is None else sums.before()
  q, a = tied(1, x.q, sums), tied(1, x.a, at)
  b, k = tied(-1, x.b, sums), tied(-1, x.k, sums)
  u = einsum('xij,xje->xie', _pairs(dtype, a, k, at, sums, strict=True), x.v)
  w, u = solved(dtype, -_pairs(dtype, a, b, at, sums, strict=True), None,
                (_start(a, at), u))
  return _affine(
      dtype, *_keep(sums, len(x.q)), _start(q, sums), _end(b, sums), w, u,
      _pairs(dtype, q, b, sums, sums),
      einsum('xid,xie->xde', _end(k, sums), x.v),
      einsum('xij,xje->xie', _pairs(dtype, q, k, sums, sums), x.v), state)


def _affine_forward(dtype, keep, end, q, k, w, u, weights, kv, o, state):
  """Returns (last state, outputs) of a delta rule, and arrays to save.

  Without decay, keep and end are None; `_delta` has neither kv nor o.
  """
  split = lambda y: y.reshape(-1, *state.shape[:2], *y.shape[1:])
  q, k, w, weights = (y.astype(dtype) for y in (q, k, w, weights))
  factor = einsum('xid,xie->xde', k, w)
  factor += (1.0 if keep is None else keep) * jnp.eye(k.shape[-1])[None]
  added = einsum('xid,xie->xde', k, u.astype(dtype))
  added = added if kv is None else added + kv
  factor = split(factor)
  before, last = _states(factor, split(added), state)
  flat = before.astype(dtype).reshape(added.shape)
  rows = u + einsum('xid,xde->xie', w, flat)
  out = einsum('xid,xde->xie', q, flat)
  out += einsum('xij,xje->xie', weights, rows.astype(dtype))
  out = out if o is None else out + o
  return (last, split(out)), (
      keep, end, q, k, w, rows, weights, kv, o, factor, before, last)


def _affine_backward(dtype, saved, cts):
  keep, end, q, k, w, rows, weights, kv, o, factor, before, last = saved
  dlast, dout = cts
  flat = lambda y: y.reshape(-1, *y.shape[3:])
  do, states = flat(dout).astype(dtype), flat(before).astype(dtype)
  du = einsum('xij,xie->xje', weights, do)
  dbefore = einsum('xid,xie->xde', q, do)
  dbefore += einsum('xid,xie->xde', w, du.astype(dtype))
  dafter, dstate = _states(factor, dbefore.reshape(before.shape), dlast, True)
  d = flat(dafter).astype(dtype)
  du += einsum('xid,xde->xie', k, d)
  rows = rows.astype(dtype)
  return (
      jax.tree.map(jnp.zeros_like, keep),
      # Without the barrier, XLA would join the states of the loop once more.
      None if end is None else _end_gradient(
          end, *lax.optimization_barrier((dafter, before)), last),
      einsum('xie,xde->xid', do, states), einsum('xie,xde->xid', rows, d),
      einsum('xie,xde->xid', du.astype(dtype), states), du,
      einsum('xie,xje->xij', do, rows), None if kv is None else flat(dafter),
      None if o is None else flat(dout), dstate)


_affine = jax.custom_vjp(
    lambda *x: _affine_forward(*x)[0], nondiff_argnums=(0,))
_affine.defvjp(_affine_forward, _affine_backward)


def _flat(x, heads=1):
  """Joins the first axes of all arrays to X, and returns `Sums`, too.

  These are [X, C, N] of channels or [X, R, C, 1] of R = `heads`, or None.
  """
  g, sums = x.log_decay, None
  if g is not None:
    shape = g.shape[3:] if g.ndim == 5 else (heads, g.shape[3], 1)
    sums = Sums.of(g.reshape(-1, *shape))
  return jax.tree.map(lambda y: y.reshape(-1, *y.shape[3:]), x), sums


def _keep(sums, *lead):
  """Returns the decay over each chunk and its log, [*lead, N or 1, 1]."""
  if sums is None:
    return None, None
  last = sums.last()
  return [y.reshape(*lead, -1, 1) for y in (last.since(), last.rest)]


def _pairs(*args, **kwargs):
  out = decayed(*args, **kwargs)
  return out[:, 0] if out.ndim == 4 else out


def _start(x, sums):
  return x if sums is None else x * sums.since().reshape(*x.shape[:2], -1)


def _end(x, sums):
  return x if sums is None else x * sums.until().reshape(*x.shape[:2], -1)


def _walk_forward(factor, end, added, state):
  """Returns `_states` of F = exp(end), and arrays to save."""
  before, last = _states(factor, added, state)
  return (before, last), (factor, before, last)


def _walk_backward(saved, cts):
  (factor, before, last), (dbefore, dlast) = saved, cts
  dafter, dstate = _states(factor, dbefore, dlast, True)
  dend = _end_gradient(factor, dafter, before, last)
  return jnp.zeros_like(factor), dend, dafter, dstate


_walk = jax.custom_vjp(lambda *x: _walk_forward(*x)[0])
_walk.defvjp(_walk_forward, _walk_backward)


def _states(factor, added, state, reverse=False):
  """Returns the states before all chunks, and the last: S' = F S + A.

  F is [n, B, H, N, N], or [n, B, H, N or 1, 1] and multiplies rows. A and the
  states are [n, B, H, N, E], the first and last state [B, H, N, E]. `reverse`
  goes from the last chunk to the first, with transposed F.
  """
  def turn(s, x):
    f, a = x
    if f.shape[-1] == 1:
      return f * s + a, s
    f = jnp.swapaxes(f, -1, -2) if reverse else f
    return jnp.matmul(f, s, precision=lax.Precision.HIGHEST) + a, s

  last, before = lax.scan(turn, state, (factor, added), reverse=reverse,
                          unroll=UNROLL)
  return before, last


def _end_gradient(end, dafter, before, last):
  """Returns the gradient of the log decay of chunks: S' times its gradient."""
  axes = (-2, -1) if end.shape[-2] == 1 else -1
  return jnp.concatenate([(x * y).sum(axes) for x, y in (
      (dafter[:-1], before[1:]), (dafter[-1:], last[None]))]).reshape(end.shape)
