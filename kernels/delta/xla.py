"""The delta rules in plain XLA: chunks, no loop over tokens.

A chunk turns the state S before it into outputs O and the state S' after it:

  U = u + w S,  O = q S + weights U + o,  S' = keep S + k^T U + kv

U has a row for each token. `_Chunks` holds the other factors. u and w contain
the inverse of a triangular matrix: the WY form of Yang et al. 2024 (arXiv
2406.06484, section 3.2) and, with decays, of arXiv 2412.06464, section 3.3.
A scan over chunks finds the states with two matmuls each. An outer loop over
segments of 1,024 tokens saves only the states before them, and its backward
pass recomputes a segment.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels import axes, dispatch, xla
from lra.kernels.delta import chunk
from lra.kernels.xla import einsum

CHUNK = 64
CPU_CHUNK = 16  # needs the least work; a CPU has no fast units for matmuls
SEGMENT = 1024


def forward(inputs, scale, save):
  del save
  x, state = inputs._replace(state=None), inputs.state
  batch, length, heads, width = x.v.shape
  size = CPU_CHUNK if dispatch.platform() == 'cpu' else CHUNK
  size = min(size, 1 << (length - 1).bit_length())
  plan = xla.Segments.of(length, size, SEGMENT)
  if x.log_decay is not None and x.log_decay.ndim == 3:
    x = x._replace(log_decay=x.log_decay[..., None])

  def split(y):
    extra = plan.count * plan.size - length
    y = jnp.pad(y, [(0, 0), (0, extra)] + [(0, 0)] * (y.ndim - 2))
    y = y.reshape(batch, plan.count, -1, size, *y.shape[2:])
    return jnp.transpose(y, (1, 2, 0, 4, 3, *range(5, y.ndim)))

  if state is None:
    state = axes.zeros((batch, heads, x.k.shape[-1], width), jnp.float32, x.v)
  state, out = lax.scan(
      jax.checkpoint(functools.partial(_segment, scale), prevent_cse=False),
      state, jax.tree.map(split, x))
  out = jnp.transpose(out, (2, 0, 1, 4, 3, 5))
  return (out.reshape(batch, -1, heads, width)[:, :length], state), None


class _Chunks(NamedTuple):
  """Factors of all chunks of a segment, each array [n, B, H, ...]."""
  u: jax.Array
  w: jax.Array
  k: jax.Array
  keep: jax.Array | None
  kv: jax.Array | None
  q: jax.Array
  weights: jax.Array
  o: jax.Array | None


def _segment(scale, state, x):
  """Returns (state after a segment, its outputs [n, B, H, C, E])."""
  dtype, lead = x.q.dtype, x.q.shape[:3]
  x = jax.tree.map(lambda y: y.reshape(-1, *y.shape[3:]), x)
  chunks = _delta(x) if x.a is None else _general(x)
  chunks = jax.tree.map(lambda y: y.reshape(*lead, *y.shape[1:]), chunks)

  def walk(state, c):
    rows = c.u + einsum('bhid,bhde->bhie', c.w, state.astype(dtype))
    after = einsum('bhid,bhie->bhde', c.k, rows.astype(dtype))
    after += state if c.keep is None else c.keep * state
    if c.kv is not None:
      after += c.kv
    return after, (state.astype(dtype), rows.astype(dtype))

  outside = dict(q=None, weights=None, o=None)
  state, (before, rows) = lax.scan(walk, state, chunks._replace(**outside))
  out = einsum('nbhid,nbhde->nbhie', chunks.q, before)
  out += einsum('nbhij,nbhje->nbhie', chunks.weights, rows)
  if chunks.o is not None:
    out += chunks.o
  return state, (out * scale).astype(dtype)


def _delta(x):
  dtype = x.q.dtype
  pairs, since, until = chunk.decayed(
      jnp.stack([x.q, x.k], 1), x.k[:, None], x.log_decay)
  beta = x.beta[..., None]
  solve = chunk.inverse(jnp.tril(beta * pairs[:, 1, 0], -1))
  solve = solve * jnp.swapaxes(beta, -1, -2)
  w = _solved(solve, _times(x.k, since))
  return _Chunks(
      u=_solved(solve, x.v), w=-w.astype(dtype),
      k=_times(x.k, until), keep=_keep(since), kv=None, q=_times(x.q, since),
      weights=pairs[:, 0, 0].astype(dtype), o=None)


def _solved(solve, y):
  """Returns solve y, as if the float32 matrix had twice the digits of y.

  If beta is above 1, entries alternate in sign, up to 4. Errors of 8 bits in
  them would let a state grow that the exact rule keeps bounded.
  """
  high, spec = xla.rounded(solve, y.dtype), 'xij,xjd->xid'
  out = einsum(spec, high.astype(y.dtype), y)
  if y.dtype == jnp.float32:
    return out
  return out + einsum(spec, (solve - high).astype(y.dtype), y)


def _general(x):
  dtype = x.q.dtype
  # `a` of token i reads the state after token i - 1, like q of token i - 1.
  pairs, since, until = chunk.decayed(
      jnp.stack([x.q, _later(x.a)], 1), jnp.stack([x.k, x.b], 1), x.log_decay)
  out_v, out_rows = (pairs[:, 0, n].astype(dtype) for n in (0, 1))
  to_v, to_rows = (_earlier(pairs[:, 1, n]) for n in (0, 1))
  solve = chunk.inverse(-to_rows).astype(dtype)
  start = None if since is None else _earlier(since)
  u = einsum('xij,xje->xie', to_v.astype(dtype), x.v)
  u = einsum('xij,xje->xie', solve, u.astype(dtype))
  w = einsum('xij,xjd->xid', solve, _times(x.a, start))
  return _Chunks(
      u=u, w=w.astype(dtype), k=_times(x.b, until), keep=_keep(since),
      kv=einsum('xid,xie->xde', _times(x.k, until), x.v),
      q=_times(x.q, since), weights=out_rows,
      o=einsum('xij,xje->xie', out_v, x.v))


def _times(x, log_factor):
  return x if log_factor is None else xla.weighed(x, jnp.exp(log_factor))


def _keep(since):
  """Returns the decay over a chunk, [X, N or 1, 1]."""
  if since is None:
    return None
  return jnp.exp(jnp.swapaxes(since[:, -1:], -1, -2))


def _later(x):
  """Moves rows one place to the front; the last becomes 0."""
  return jnp.pad(x[:, 1:], ((0, 0), (0, 1), (0, 0)))


def _earlier(x):
  """Moves rows one place to the back; the first becomes 0."""
  return jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0)))
