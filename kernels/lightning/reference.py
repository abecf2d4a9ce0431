"""Lightning attention in plain XLA: all chunks at once, no token loop."""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from kernels import chunks

CHUNK = 64


def forward(q, k, v, mask, slopes, initial_state, options):
  """The equation of `api.lightning_attention`; differentiable by JAX.

  Returns (out, final state or None). The backward pass keeps q, k, v and the
  chunk states and computes the [C, C] products again.
  """
  if mask is not None:
    mask = mask[:, :, None, None]
    q, k, v = (jnp.where(mask, x, 0) for x in (q, k, v))
  out, state = _chunked(q, k, v, slopes, initial_state, options.scale)
  if mask is not None:
    out = jnp.where(mask, out, 0)
  return out, state if options.return_state else None


@functools.partial(
  jax.checkpoint,
  policy=jax.checkpoint_policies.save_only_these_names('lightning_states'),
  static_argnums=(5,),
)
def _chunked(q, k, v, slopes, initial_state, scale):
  length, dtype = q.shape[1], q.dtype
  chunk = min(CHUNK, length)
  count = -(-length // chunk)
  q, k, v = (_split(x, count, chunk) for x in (q, k, v))
  dot = functools.partial(
    jnp.einsum,
    precision=chunks.precision(dtype),
    preferred_element_type=jnp.float32,
  )
  i = jnp.arange(chunk)
  last = length - (count - 1) * chunk
  rows_N = jnp.full((count,), chunk).at[-1].set(last)
  to_end_NxCxH = chunks.to_end(slopes, i[:, None], rows_N[:, None, None])
  k_end = (k * to_end_NxCxH[..., None]).astype(dtype)
  kv_BxNxHxDxE = dot('bnchd,bnche->bnhde', k_end, v)
  before, final = _states(kv_BxNxHxDxE, slopes, initial_state, chunk, last)
  before = checkpoint_name(before.astype(dtype), 'lightning_states')

  decay_HxCxC = chunks.within(slopes[:, None, None], i[:, None], i[None, :])
  scores = dot('bnihd,bnjhd->bnhij', q, k) * decay_HxCxC
  out = dot('bnhij,bnjhe->bnihe', scores.astype(dtype), v)
  start_CxH = chunks.from_start(slopes, i[:, None])
  out += dot('bnchd,bnhde->bnche', q, before) * start_CxH[..., None]
  out = (out * scale).astype(dtype)
  out = out.reshape(out.shape[0], count * chunk, *out.shape[3:])
  return out[:, :length], final


def _split(x_BxLxHxD, count, chunk):
  """[B, N, C, H, D], with zeros behind the last token."""
  b, length, h, d = x_BxLxHxD.shape
  if count * chunk != length:
    pad = (0, 0), (0, count * chunk - length), (0, 0), (0, 0)
    x_BxLxHxD = jnp.pad(x_BxLxHxD, pad)
  return x_BxLxHxD.reshape(b, count, chunk, h, d)


def _states(kv_BxNxHxDxE, slopes, initial_state, chunk, last):
  """The state before every chunk [B, N, H, D, E], and after the last."""
  if initial_state is None:
    initial_state = jnp.zeros_like(kv_BxNxHxDxE[:, 0])
  first = jnp.concatenate(
    [initial_state[:, None], kv_BxNxHxDxE[:, :-1]], axis=1
  )
  before = chunks.prefix(first, slopes * chunk)
  left_H = chunks.over(slopes, last)
  final = left_H[:, None, None] * before[:, -1] + kv_BxNxHxDxE[:, -1]
  return before, final
