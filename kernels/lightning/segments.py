"""Lightning attention of several sequences in one row, in plain XLA."""

import jax
import jax.numpy as jnp

from kernels import chunks, products, segments


def attend(inputs, options, segment_ids, num_segments):
  """Returns (out [B, L, H, Dh], states or None); autodiff differentiates it.

  Args:
    inputs: `kernels.inputs.Inputs` with a state for every segment,
      [B, N, H, Dh, Dh].
    options: LightningOptions.
    segment_ids, num_segments: see `kernels.segments.chunks`.
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
  before = _states(c, kv_BxPxHxDxE, left_BxPxH, first)

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


def _states(c, kv_BxPxHxDxE, left_BxPxH, first):
  """Returns the state before every chunk; `first` at starts of segments."""
  shift = [(0, 0), (1, 0)]
  kv = jnp.pad(kv_BxPxHxDxE, shift + [(0, 0)] * 3)[:, :-1]
  left = jnp.pad(left_BxPxH, shift + [(0, 0)])[:, :-1]
  add = c.chosen(c.first_BxP, first, kv)
  factor = c.chosen(c.first_BxP, jnp.zeros_like(left), left)

  def join(a, b):
    return a[0] * b[0], b[0][..., None, None] * a[1] + b[1]

  return jax.lax.associative_scan(join, (factor, add), axis=1)[1]
