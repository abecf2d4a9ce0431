"""The chunk mathematics of causal attention with decay, shared by all.

With per-head slope s, lightning attention is the recurrence
  S_t = exp(-s) S_{t-1} + k_t^T v_t,   o_t = q_t S_t.
Over a chunk of C rows with state S in front of it (rows i = 0 .. C - 1):
  o_i = sum_{j <= i} exp(-s (i - j)) (q_i . k_j) v_j + exp(-s (i + 1)) q_i S
  S'  = exp(-s n) S + sum_{j < n} exp(-s (n - 1 - j)) k_j^T v_j
where n <= C is the number of rows that exist (the last chunk may be ragged).
Lightning Attention-2 (arXiv 2401.04658), Algorithm 1. Everything here is
plain jnp, so it runs in XLA and inside kernels alike.
"""

import jax
import jax.numpy as jnp
from jax import lax

GROUP = 16


def within(slope, rows_CxC, cols_CxC):
  """exp(-s (i - j)) below and on the diagonal, 0 above. [C, C] float32."""
  gap = (rows_CxC - cols_CxC).astype(jnp.float32)
  # The maximum keeps exp finite where the select discards it.
  decay = jnp.exp(-slope * jnp.maximum(gap, 0.0))
  return jnp.where(gap >= 0, decay, 0.0)


def from_start(slope, rows):
  """exp(-s (i + 1)): what row i still sees of the state before the chunk."""
  return jnp.exp(-slope * (rows + 1).astype(jnp.float32))


def to_end(slope, rows, length):
  """exp(-s (n - 1 - i)): what the state after n rows still holds of row i."""
  gap = (length - 1 - rows).astype(jnp.float32)
  return jnp.exp(-slope * jnp.maximum(gap, 0.0))


def over(slope, length):
  """exp(-s n): what is left of a state after n rows."""
  return jnp.exp(-slope * jnp.asarray(length).astype(jnp.float32))


def prefix(x_BxNxHxDxE, slope_H):
  """y_n = sum_{m <= n} exp(-s (n - m)) x_m along axis 1, in O(N) work.

  One matrix product per level of a tree of width GROUP: no loop over N, so
  an accelerator runs a handful of launches rather than N.
  """
  n = x_BxNxHxDxE.shape[1]
  if n > GROUP:
    return _grouped_prefix(x_BxNxHxDxE, slope_H)
  i = jnp.arange(n)
  decay_HxNxN = within(
    slope_H[:, None, None], i[None, :, None], i[None, None, :]
  )
  return jnp.einsum(
    'hnm,bmhde->bnhde',
    decay_HxNxN,
    x_BxNxHxDxE,
    precision=lax.Precision.HIGHEST,
  )


def _grouped_prefix(x, slope_H):
  b, n = x.shape[:2]
  groups = -(-n // GROUP)
  pad = [(0, 0)] * x.ndim
  pad[1] = (0, groups * GROUP - n)
  x = jnp.pad(x, pad).reshape(b * groups, GROUP, *x.shape[2:])
  inner = prefix(x, slope_H).reshape(b, groups, GROUP, *x.shape[2:])
  totals = prefix(inner[:, :, -1], slope_H * GROUP)
  before = jnp.pad(totals, [(0, 0), (1, 0)] + [(0, 0)] * 3)[:, :-1]
  carry_GxH = from_start(slope_H[None, :], jnp.arange(GROUP)[:, None])
  out = inner + carry_GxH[None, None, :, :, None, None] * before[:, :, None]
  return out.reshape(b, groups * GROUP, *x.shape[2:])[:, :n]


def default_slopes(num_heads):
  """2**(-8 (h + 1) / H), the slopes of ALiBi (arXiv 2108.12409, section 3)."""
  h = jnp.arange(1, num_heads + 1, dtype=jnp.float32)
  return jnp.exp2(-8.0 * h / num_heads)


def precision(dtype):
  """Full float32 products for float32 operands, one pass otherwise."""
  if dtype == jnp.float32:
    return jax.lax.Precision.HIGHEST
  return jax.lax.Precision.DEFAULT
