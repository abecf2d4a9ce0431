"""Causal sums with a decay for each position, computed in chunks.

Shapes: B batch, L length, H heads, M features, E width of values, C chunk.
"""

import jax
import jax.numpy as jnp


def gated_sums(phi_q_BxLxHxM: jax.Array, phi_k_BxLxHxM: jax.Array,
               v_BxLxHxE: jax.Array, log_decay_BxLxH: jax.Array,
               chunk: int) -> jax.Array:
  """Returns o_t = phi(q_t) S_t with a decaying state S.

    S_t = exp(log_decay_t) S_(t-1) + phi(k_t)^T v_t

  Within a chunk every pair of positions gets a weight; the state S, [B, H, M,
  E], holds all earlier chunks. Time and memory are linear in L: the backward
  pass keeps the states between chunks of C positions and recomputes the rest.
  The operands may have any float dtype, log_decay is at most 0. Matmuls, sums
  and the result, [B, L, H, E], are float32.
  """
  length = phi_q_BxLxHxM.shape[1]
  chunk = min(chunk, length)

  def split(x_BxL):
    """Cuts into zero-filled chunks, [B, L, H, ...] -> [N, B, H, C, ...]."""
    x_BxL = x_BxL.astype(jnp.float32)
    x_BxL = jnp.pad(
        x_BxL, [(0, 0), (0, -length % chunk)] + [(0, 0)] * (x_BxL.ndim - 2))
    x_BxNxC = x_BxL.reshape(len(x_BxL), -1, chunk, *x_BxL.shape[2:])
    return jnp.moveaxis(jnp.moveaxis(x_BxNxC, 3, 2), 1, 0)

  batch, _, heads, width = v_BxLxHxE.shape
  state = jnp.zeros((batch, heads, phi_q_BxLxHxM.shape[-1], width))
  _, o_NxBxHxCxE = jax.lax.scan(
      jax.checkpoint(_step), state,
      tuple(map(split, (phi_q_BxLxHxM, phi_k_BxLxHxM, v_BxLxHxE,
                        log_decay_BxLxH))))
  o_BxNxCxHxE = jnp.moveaxis(jnp.moveaxis(o_NxBxHxCxE, 0, 1), 2, 3)
  return o_BxNxCxHxE.reshape(batch, -1, heads, width)[:, :length]


def _step(state_BxHxMxE, chunk):
  """Returns the next state and a chunk's outputs [B, H, C, E]."""
  q_BxHxCxM, k_BxHxCxM, v_BxHxCxE, log_decay_BxHxC = chunk
  since_BxHxC = jnp.cumsum(log_decay_BxHxC, -1)  # from the start of the chunk
  positions = jnp.arange(since_BxHxC.shape[-1])
  between_BxHxCxC = jnp.exp(jnp.where(
      (positions[:, None] >= positions[None])[None, None],
      since_BxHxC[..., :, None] - since_BxHxC[..., None, :], -1e30))
  weights_BxHxCxC = between_BxHxCxC * _product(
      'bhtm,bhsm->bhts', q_BxHxCxM, k_BxHxCxM)
  until_BxHxCx1 = jnp.exp(since_BxHxC[..., -1:] - since_BxHxC)[..., None]
  o_BxHxCxE = (
      _product('bhts,bhse->bhte', weights_BxHxCxC, v_BxHxCxE)
      + _product('bhtm,bhme->bhte', q_BxHxCxM * jnp.exp(since_BxHxC)[..., None],
                 state_BxHxMxE))
  whole_BxHx1x1 = jnp.exp(since_BxHxC[..., -1])[..., None, None]
  state_BxHxMxE = whole_BxHx1x1 * state_BxHxMxE + _product(
      'bhsm,bhse->bhme', k_BxHxCxM * until_BxHxCx1, v_BxHxCxE)
  return state_BxHxMxE, o_BxHxCxE


def _product(subscripts, x, y):
  return jnp.einsum(subscripts, x, y, precision='highest')
