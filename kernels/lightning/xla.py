"""Lightning attention in plain XLA: chunks, no loop over tokens.

A loop goes over segments of 1,024 tokens. The states of a segment's chunks come
from a tree of matmuls (`chunks.prefix`).
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from lra.kernels import axes, chunks, segments, xla

CHUNK = 64
SEGMENT = 1024


def forward(inputs, options, save):
  """Saves the states before segments, [B, segments, H, D, D]."""
  (q, k, v), mask = inputs.apart(), inputs.mask
  slopes, initial_state = inputs.slopes, inputs.state
  b, length, h, d = q.shape
  plan = _plan(length)
  q, k, v = plan.pad(*(xla.keep(mask, x) for x in (q, k, v)))
  if initial_state is None:
    initial_state = axes.zeros((b, h, d, d), jnp.float32, q)

  def body(carry, n):
    state, out = carry
    rows = jnp.minimum(plan.size, length - n * plan.size)
    after, part = _segment(plan.chunk, rows, slopes, options.scale, state,
                           *plan.read((q, k, v), n))
    return (after, *plan.write([out], n, [part])), state

  carry = initial_state, axes.zeros(q.shape, q.dtype, q)
  (state, out), before = lax.scan(body, carry, jnp.arange(plan.count))
  saved = jnp.moveaxis(before, 0, 1) if save else None
  state = state if options.return_state else None
  return (xla.keep(mask, out[:, :length]), state), saved


def backward(inputs, saved, cotangents, options):
  """Recomputes each segment from the state before it, then goes backward.
  """
  (do, dstate), (q, k, v), mask = cotangents, inputs.apart(), inputs.mask
  length = q.shape[1]
  plan = _plan(length)
  q, k, v, do = plan.pad(*(xla.keep(mask, x) for x in (q, k, v, do)))
  if dstate is None:
    dstate = axes.zeros(saved[:, 0].shape, jnp.float32, do)

  def body(carry, x):
    dstate, *grads = carry
    n, state = x
    rows = jnp.minimum(plan.size, length - n * plan.size)
    run = functools.partial(_segment, plan.chunk, rows, inputs.slopes,
                            options.scale)
    _, pull = jax.vjp(run, state, *plan.read((q, k, v), n))
    dstate, *parts = pull((dstate, *plan.read([do], n)))
    return (dstate, *plan.write(grads, n, parts)), None

  carry = dstate, *(axes.zeros(x.shape, x.dtype, x) for x in (q, k, v))
  xs = jnp.arange(plan.count), jnp.moveaxis(saved, 1, 0)
  (dstate, *grads), _ = lax.scan(body, carry, xs, reverse=True)
  grads = [xla.keep(mask, x[:, :length]) for x in grads]
  return inputs.gradients(grads, state=dstate)


def _plan(length):
  return xla.Segments.of(length, min(CHUNK, length), SEGMENT)


def _segment(chunk, rows, slopes, scale, state, q, k, v):
  """Returns (state after a segment of `rows` rows, its outputs)."""
  dtype, count = q.dtype, q.shape[1] // chunk
  split = (q.shape[0], count, chunk, *q.shape[2:])
  q, k, v = (x.reshape(split) for x in (q, k, v))
  i = jnp.arange(chunk)
  left_N = rows - chunk * jnp.arange(count)
  rows_N = jnp.clip(left_N, 0, chunk)
  end_NxCxH = chunks.to_end(slopes[None, None], i[None, :, None],
                            rows_N[:, None, None])
  k_end = xla.weighed(k, end_NxCxH[None, ..., None])
  kv_BxNxHxDxE = xla.einsum('bnchd,bnche->bnhde', k_end, v)
  before, after = _states(chunk, rows, slopes, state, kv_BxNxHxDxE)

  decay_HxCxC = chunks.within(slopes[:, None, None], i[None, :, None],
                              i[None, None, :])
  scores = xla.einsum('bnihd,bnjhd->bnhij', q, k) * decay_HxCxC[None, None]
  out = xla.einsum('bnhij,bnjhe->bnihe', scores.astype(dtype), v)
  start_CxH = chunks.from_start(slopes[None], i[:, None])
  carried = xla.einsum('bnchd,bnhde->bnche', q, before.astype(dtype))
  out = (out + carried * start_CxH[None, None, ..., None]) * scale
  return after, out.astype(dtype).reshape(out.shape[0], -1, *out.shape[3:])


def _states(chunk, rows, slopes, state, kv_BxNxHxDxE):
  """Returns states before chunks [B, N, H, D, E], and after the last row."""
  first = jnp.concatenate([state[:, None], kv_BxNxHxDxE[:, :-1]], axis=1)
  before = chunks.prefix(first, slopes * chunk)
  last = (rows - 1) // chunk
  left_H = chunks.over(slopes, rows - last * chunk)
  pick = functools.partial(lax.dynamic_index_in_dim, axis=1, keepdims=False)
  after = left_H[None, :, None, None] * pick(before, last)
  after += pick(kv_BxNxHxDxE, last)
  return before, after


def of_segments(inputs, options, segment_ids, num_segments):
  """Returns (out, states [B, N, ...] or None) of segments in each row.

  Autodiff computes gradients. See `lra.kernels.segments.chunks`.
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
  kv_BxPxHxDxE = xla.einsum('bpchd,bpche->bphde', k_end, v)
  left_BxPxH = chunks.over(slopes_H, rows_BxPx1)
  first = jnp.zeros_like(kv_BxPxHxDxE)
  if inputs.state is not None:
    first = c.of_chunks(inputs.state)
  before = _states_of_chunks(c, kv_BxPxHxDxE, left_BxPxH, first)

  decay_HxCxC = chunks.within(slopes_H[:, None, None], i_C[:, None],
                              i_C[None, :])
  scores = xla.einsum('bpihd,bpjhd->bphij', q, k) * decay_HxCxC
  out = xla.einsum('bphij,bpjhe->bpihe', scores.astype(dtype), v)
  start_CxH = chunks.from_start(slopes_H, i_C[:, None])
  carried = xla.einsum('bpchd,bphde->bpche', q, before.astype(dtype))
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
