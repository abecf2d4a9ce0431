"""Linear attention of several sequences in one row, in plain XLA."""

import jax.numpy as jnp

from kernels import products, segments
from kernels.linear import features


def attend(inputs, options, segment_ids, num_segments):
  """Returns (out [B, L, H, E], states or None); autodiff differentiates it.

  Args:
    inputs: `kernels.inputs.Inputs` with a state for every segment, on an axis N
      after B.
    options: LinearOptions.
    segment_ids, num_segments: see `kernels.segments.chunks`.
  """
  q, k, v = inputs.apart()
  dtype = q.dtype
  c = segments.chunks(segment_ids, num_segments, inputs.mask)
  q, k, v = map(c.split, (q, k, v))
  phi_q, phi_k = (c.keep(features.apply(options.feature_map, x)).astype(dtype)
                  for x in (q, k))
  kv = c.of_segments(products.einsum('bpchd,bpche->bphde', phi_k, v))
  z = c.of_segments(phi_k.sum(2, dtype=jnp.float32))
  if inputs.state is not None:
    first = inputs.state if options.normalize else (inputs.state, 0.0)
    kv, z = kv + first[0], z + first[1]
  mine = c.of_chunks(kv).astype(dtype)
  if options.normalize:
    # No rounding: the gradients of numerator and normaliser nearly cancel.
    phi_q, mine = phi_q.astype(jnp.float32), mine.astype(jnp.float32)
  out = products.einsum('bpchd,bphde->bpche', phi_q, mine) * options.scale
  if options.normalize:
    norm = products.einsum('bpchd,bphde->bpche', phi_q,
                           c.of_chunks(z)[..., None])
    out = out / jnp.where(c.kept_BxPxC[..., None, None], norm + options.eps, 1)
  state = None
  if options.return_state:
    state = (kv, z) if options.normalize else kv
  return c.join(out).astype(dtype), state
