"""Lightning attention in plain XLA: chunks, no loop over tokens.

A loop over segments of 1,024 tokens keeps temporary memory independent of L.
Within a segment all chunks are computed at once, and their states come from a
tree of matmuls (`chunks.prefix`).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels import axes, chunks, products, segments

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
    initial_state = axes.zeros((b, h, d, d), jnp.float32, q)

  def body(carry, n):
    state, out = carry
    after, part = _segment(plan, n, slopes, state, *plan.read((q, k, v), n))
    return (after, *plan.write([out], n, [part])), state

  carry = initial_state, axes.zeros(q.shape, q.dtype, q)
  (state, out), before = lax.scan(body, carry, jnp.arange(plan.count))
  saved = jnp.moveaxis(before, 0, 1) if save else None
  state = state if options.return_state else None
  return _keep(mask, out[:, :length]), state, saved


def backward(inputs, saved, do, dfinal_state, options):
  """Returns (gradients of q, k, v; None for a bias; gradient of the state).

  Recomputes every segment from the state before it, then goes backward over it.
  """
  (q, k, v), mask, slopes = inputs.apart(), inputs.mask, inputs.slopes
  length = q.shape[1]
  plan = _plan(length, options.scale)
  q, k, v, do = plan.pad(mask, q, k, v, do)
  if dfinal_state is None:
    dfinal_state = axes.zeros(saved[:, 0].shape, jnp.float32, do)

  def body(carry, x):
    dstate, *grads = carry
    n, state = x
    run = functools.partial(_segment, plan, n, slopes)
    _, pull = jax.vjp(run, state, *plan.read((q, k, v), n))
    dstate, *parts = pull((dstate, *plan.read([do], n)))
    return (dstate, *plan.write(grads, n, parts)), None

  carry = dfinal_state, *(axes.zeros(x.shape, x.dtype, x) for x in (q, k, v))
  xs = jnp.arange(plan.count), jnp.moveaxis(saved, 1, 0)
  (dstate, *grads), _ = lax.scan(body, carry, xs, reverse=True)
  grads = (_keep(mask, x[:, :length]) for x in grads)
  return tuple(grads), None, dstate


class _Plan(NamedTuple):
  """Divides a sequence into `count` segments of `size` rows.

  A segment is cut into chunks of `chunk` rows. `length` rows exist; zeros fill
  the last segment.
  """
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


def of_segments(inputs, options, segment_ids, num_segments):
  """Computes attention within segments: several sequences in each row.

  Returns out [B, L, H, Dh], and the state after every segment [B, N, H, Dh, Dh]
  or None. Autodiff computes gradients. See `lra.kernels.segments.chunks`.
  """
  q, k, v = inputs.apart()
  dtype, slopes_H = q.dtype, inputs.slopes
  c = segments.chunks(segment_ids, num_segments, inputs.mask)
  q, k, v = map(c.split, (q, k, v))
  if options.activation == 'silu':
    q, k, v = (jax.nn.silu(x.astype(jnp.float32)).astype(dtype)
               for x in (q, k, v))
  i_C = jnp.arange(q.shape[2])
  rows_BxPx1 = c.rows_BxP[..., None]
  end_BxPxCxH = chunks.to_end(slopes_H, i_C[:, None], rows_BxPx1[..., None])
  k_end = (k * end_BxPxCxH[..., None]).astype(dtype)
  kv_BxPxHxDxE = products.einsum('bpchd,bpche->bphde', k_end, v)
  left_BxPxH = chunks.over(slopes_H, rows_BxPx1)
  first = jnp.zeros_like(kv_BxPxHxDxE)
  if inputs.state is not None:
    first = c.of_chunks(inputs.state)
  before = _states_of_chunks(c, kv_BxPxHxDxE, left_BxPxH, first)

  decay_HxCxC = chunks.within(slopes_H[:, None, None], i_C[:, None],
                              i_C[None, :])
  scores = products.einsum('bpihd,bpjhd->bphij', q, k) * decay_HxCxC
  out = products.einsum('bphij,bpjhe->bpihe', scores.astype(dtype), v)
  start_CxH = chunks.from_start(slopes_H, i_C[:, None])
  carried = products.einsum('bpchd,bphde->bpche', q, before.astype(dtype))
  out = (out + carried * start_CxH[..., None]) * options.scale
  state = None
  if options.return_state:
    after = left_BxPxH[..., None, None] * before + kv_BxPxHxDxE
    state = c.of_segments(c.chosen(c.last_BxP, after, 0.0))
    if inputs.state is not None:
      state = c.chosen(c.empty_BxN, inputs.state, state)
  return c.join(out).astype(dtype), state


def _states_of_chunks(c, kv_BxPxHxDxE, left_BxPxH, first):
  """Returns the state before every chunk; `first` if it starts a segment."""
  shift = [(0, 0), (1, 0)]
  kv = jnp.pad(kv_BxPxHxDxE, shift + [(0, 0)] * 3)[:, :-1]
  left = jnp.pad(left_BxPxH, shift + [(0, 0)])[:, :-1]
  add = c.chosen(c.first_BxP, first, kv)
  factor = c.chosen(c.first_BxP, jnp.zeros_like(left), left)

  def join(a, b):
    return a[0] * b[0], b[0][..., None, None] * a[1] + b[1]

  return jax.lax.associative_scan(join, (factor, add), axis=1)[1]
