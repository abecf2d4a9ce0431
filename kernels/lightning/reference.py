"""Lightning attention in plain XLA: chunks, no loop over tokens.

A loop runs over segments of 1,024 tokens, so that temporary memory does not
grow with L. Inside a segment every chunk is computed at once, and the states
come from a tree of matrix products (`chunks.prefix`).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kernels import chunks

CHUNK = 64
SEGMENT = 1024


def forward(q, k, v, mask, slopes, initial_state, options):
  """The equation of `api.lightning_attention`, differentiable in reverse.

  Returns (out, final state or None). The backward pass keeps q, k, v and one
  state per segment, and computes a segment again before it goes back over it.
  """
  b, length, h, d = q.shape
  if mask is not None:
    mask = mask[:, :, None, None]
    q, k, v = (jnp.where(mask, x, 0) for x in (q, k, v))
  if initial_state is None:
    initial_state = _zeros((b, h, d, d), jnp.float32, q)
  plan = _plan(length, options.scale)
  pad = (0, 0), (0, plan.count * plan.size - length), (0, 0), (0, 0)
  q, k, v = (jnp.pad(x, pad) for x in (q, k, v))
  out, state = _segments(plan, slopes, initial_state, q, k, v)
  out = out[:, :length]
  if mask is not None:
    out = jnp.where(mask, out, 0)
  return out, state if options.return_state else None


class _Plan(NamedTuple):
  """`count` segments of `size` rows, whole chunks; `length` rows exist."""

  length: int
  count: int
  size: int
  chunk: int
  scale: float

  def rows(self, n):
    return jnp.minimum(self.size, self.length - n * self.size)

  def read(self, arrays, n):
    at = n * self.size
    return [lax.dynamic_slice_in_dim(x, at, self.size, 1) for x in arrays]

  def write(self, arrays, n, parts):
    at = n * self.size
    update = lax.dynamic_update_slice_in_dim
    return [update(x, p, at, 1) for x, p in zip(arrays, parts, strict=True)]


def _plan(length, scale):
  chunk = min(CHUNK, length)
  count = -(-length // SEGMENT)
  size = -(-length // (count * chunk)) * chunk
  return _Plan(length, count, size, chunk, scale)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _segments(plan, slopes, state, q, k, v):
  return _segments_forward(plan, slopes, state, q, k, v)[0]


def _segments_forward(plan, slopes, state, q, k, v):
  def body(carry, n):
    state, out = carry
    after, part = _segment(plan, n, slopes, state, *plan.read((q, k, v), n))
    return (after, *plan.write([out], n, [part])), state

  carry = state, _zeros(q.shape, q.dtype, q)
  (state, out), before = lax.scan(body, carry, jnp.arange(plan.count))
  return (out, state), (slopes, before, q, k, v)


def _segments_backward(plan, residuals, cotangents):
  slopes, before, q, k, v = residuals
  dout, dstate = cotangents

  def body(carry, x):
    dstate, *grads = carry
    n, state = x
    run = functools.partial(_segment, plan, n, slopes)
    _, pull = jax.vjp(run, state, *plan.read((q, k, v), n))
    dstate, *parts = pull((dstate, *plan.read([dout], n)))
    return (dstate, *plan.write(grads, n, parts)), None

  carry = dstate, *(_zeros(x.shape, x.dtype, x) for x in (q, k, v))
  xs = jnp.arange(plan.count), before
  (dstate, *grads), _ = lax.scan(body, carry, xs, reverse=True)
  return jnp.zeros_like(slopes), dstate, *grads


_segments.defvjp(_segments_forward, _segments_backward)


def _segment(plan, n, slopes, state, q, k, v):
  """(state behind segment n, its outputs) from the state in front of it."""
  dtype, count = q.dtype, plan.size // plan.chunk
  split = (q.shape[0], count, plan.chunk, *q.shape[2:])
  q, k, v = (x.reshape(split) for x in (q, k, v))
  dot = functools.partial(
    jnp.einsum,
    precision=chunks.precision(dtype),
    preferred_element_type=jnp.float32,
  )
  i = jnp.arange(plan.chunk)
  rows_N = jnp.clip(plan.rows(n) - plan.chunk * jnp.arange(count), 0, plan.chunk)
  end_NxCxH = chunks.to_end(slopes, i[:, None], rows_N[:, None, None])
  k_end = (k * end_NxCxH[..., None]).astype(dtype)
  kv_BxNxHxDxE = dot('bnchd,bnche->bnhde', k_end, v)
  before, after = _states(plan, n, slopes, state, kv_BxNxHxDxE)

  decay_HxCxC = chunks.within(slopes[:, None, None], i[:, None], i[None, :])
  scores = dot('bnihd,bnjhd->bnhij', q, k) * decay_HxCxC
  out = dot('bnhij,bnjhe->bnihe', scores.astype(dtype), v)
  start_CxH = chunks.from_start(slopes, i[:, None])
  carried = dot('bnchd,bnhde->bnche', q, before.astype(dtype))
  out = (out + carried * start_CxH[..., None]) * plan.scale
  return after, out.astype(dtype).reshape(out.shape[0], -1, *out.shape[3:])


def _states(plan, n, slopes, state, kv_BxNxHxDxE):
  """The state before every chunk [B, N, H, D, E], and after the last row."""
  first = jnp.concatenate([state[:, None], kv_BxNxHxDxE[:, :-1]], axis=1)
  before = chunks.prefix(first, slopes * plan.chunk)
  rows = plan.rows(n)
  last = (rows - 1) // plan.chunk
  left_H = chunks.over(slopes, rows - last * plan.chunk)
  pick = functools.partial(lax.dynamic_index_in_dim, axis=1, keepdims=False)
  after = left_H[:, None, None] * pick(before, last) + pick(kv_BxNxHxDxE, last)
  return before, after


def _zeros(shape, dtype, like):
  """Zeros that vary over the mesh axes over which `like` does."""
  zero = jnp.where(False, like[(0,) * like.ndim], 0)
  return jnp.zeros(shape, dtype) + zero.astype(dtype)
