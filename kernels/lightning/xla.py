"""Lightning attention in plain XLA: chunks, no loop over tokens.

Loops over segments of 1,024 tokens, so that temporary memory does not grow with
L. Within a segment all chunks are computed at once, and their states come from
a tree of matmuls (`chunks.prefix`).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kernels import chunks, products, varying

CHUNK = 64
SEGMENT = 1024


def forward(inputs, options, save):
  """Returns (out, final state or None, states before segments or None)."""
  (q, k, v), mask = inputs.apart(), inputs.mask
  slopes, initial_state = inputs.slopes, inputs.state
  b, length, h, d = q.shape
  plan = _plan(length, options.scale)
  q, k, v = plan.pad(mask, q, k, v)
  if initial_state is None:
    initial_state = varying.zeros((b, h, d, d), jnp.float32, q)

  def body(carry, n):
    state, out = carry
    after, part = _segment(plan, n, slopes, state, *plan.read((q, k, v), n))
    return (after, *plan.write([out], n, [part])), state

  carry = initial_state, varying.zeros(q.shape, q.dtype, q)
  (state, out), before = lax.scan(body, carry, jnp.arange(plan.count))
  saved = jnp.moveaxis(before, 0, 1) if save else None
  state = state if options.return_state else None
  return _keep(mask, out[:, :length]), state, saved


def backward(inputs, saved, do, dfinal_state, options):
  """Returns (gradients of q, k, v; None; of the initial state or None).

  Recomputes every segment from the state before it, then goes backward over it.
  """
  (q, k, v), mask, slopes = inputs.apart(), inputs.mask, inputs.slopes
  length = q.shape[1]
  plan = _plan(length, options.scale)
  q, k, v, do = plan.pad(mask, q, k, v, do)
  if dfinal_state is None:
    dfinal_state = varying.zeros(saved[:, 0].shape, jnp.float32, do)

  def body(carry, x):
    dstate, *grads = carry
    n, state = x
    run = functools.partial(_segment, plan, n, slopes)
    _, pull = jax.vjp(run, state, *plan.read((q, k, v), n))
    dstate, *parts = pull((dstate, *plan.read([do], n)))
    return (dstate, *plan.write(grads, n, parts)), None

  carry = dfinal_state, *(varying.zeros(x.shape, x.dtype, x) for x in (q, k, v))
  xs = jnp.arange(plan.count), jnp.moveaxis(saved, 1, 0)
  (dstate, *grads), _ = lax.scan(body, carry, xs, reverse=True)
  grads = (_keep(mask, x[:, :length]) for x in grads)
  return tuple(grads), None, dstate


class _Plan(NamedTuple):
  """`count` segments of `size` rows in whole chunks; `length` rows exist."""
  length: int
  count: int
  size: int
  chunk: int
  scale: float

  def pad(self, mask, *arrays):
    """Sets masked tokens to 0 and appends zeros."""
    extra = self.count * self.size - self.length
    pad = (0, 0), (0, extra), (0, 0), (0, 0)
    return [jnp.pad(_keep(mask, x), pad) for x in arrays]

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


def _segment(plan, n, slopes, state, q, k, v):
  """Returns (state after segment n, its outputs) from the state before it."""
  dtype, count = q.dtype, plan.size // plan.chunk
  split = (q.shape[0], count, plan.chunk, *q.shape[2:])
  q, k, v = (x.reshape(split) for x in (q, k, v))
  i = jnp.arange(plan.chunk)
  left_N = plan.rows(n) - plan.chunk * jnp.arange(count)
  rows_N = jnp.clip(left_N, 0, plan.chunk)
  end_NxCxH = chunks.to_end(slopes[None, None], i[None, :, None],
                            rows_N[:, None, None])
  k_end = k.astype(jnp.float32) * end_NxCxH[None, ..., None]
  kv_BxNxHxDxE = products.einsum('bnchd,bnche->bnhde', k_end.astype(dtype), v)
  before, after = _states(plan, n, slopes, state, kv_BxNxHxDxE)

  decay_HxCxC = chunks.within(slopes[:, None, None], i[None, :, None],
                              i[None, None, :])
  scores = products.einsum('bnihd,bnjhd->bnhij', q, k) * decay_HxCxC[None, None]
  out = products.einsum('bnhij,bnjhe->bnihe', scores.astype(dtype), v)
  start_CxH = chunks.from_start(slopes[None], i[:, None])
  carried = products.einsum('bnchd,bnhde->bnche', q, before.astype(dtype))
  out = (out + carried * start_CxH[None, None, ..., None]) * plan.scale
  return after, out.astype(dtype).reshape(out.shape[0], -1, *out.shape[3:])


def _states(plan, n, slopes, state, kv_BxNxHxDxE):
  """Returns states before chunks [B, N, H, D, E], and after the last row."""
  first = jnp.concatenate([state[:, None], kv_BxNxHxDxE[:, :-1]], axis=1)
  before = chunks.prefix(first, slopes * plan.chunk)
  rows = plan.rows(n)
  last = (rows - 1) // plan.chunk
  left_H = chunks.over(slopes, rows - last * plan.chunk)
  pick = functools.partial(lax.dynamic_index_in_dim, axis=1, keepdims=False)
  after = left_H[None, :, None, None] * pick(before, last)
  after += pick(kv_BxNxHxDxE, last)
  return before, after


def _keep(mask, x_BxLxHxDh):
  if mask is None:
    return x_BxLxHxDh
  return jnp.where(mask[:, :, None, None], x_BxLxHxDh, 0)
