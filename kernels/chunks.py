"""Chunk formulas of causal attention with one decay per head.

With per-head slope s, lightning attention is the recurrence
  S_t = exp(-s) S_{t-1} + k_t^T v_t,   o_t = q_t S_t.
Over a chunk of C rows with state S in front of it (rows i = 0 .. C - 1):
  o_i = sum_{j <= i} exp(-s (i - j)) (q_i . k_j) v_j + exp(-s (i + 1)) q_i S
  S'  = exp(-s n) S + sum_{j < n} exp(-s (n - 1 - j)) k_j^T v_j
n <= C is the number of existing rows: the last chunk may be ragged. Source:
Lightning Attention-2 (arXiv 2401.04658), Algorithm 1. These functions are plain
jnp, so they run both in XLA and inside kernels.
"""

import jax.numpy as jnp
from jax import lax

GROUP = 16


def within(slope, rows_CxC, cols_CxC):
  """Returns exp(-s (i - j)) for i >= j, else 0. [C, C] float32."""
  gap = (rows_CxC - cols_CxC).astype(jnp.float32)
  # The maximum keeps exp finite in entries that `where` discards.
  decay = jnp.exp(-slope * jnp.maximum(gap, 0.0))
  return jnp.where(gap >= 0, decay, 0.0)


def from_start(slope, rows):
  """Returns exp(-s (i + 1)), the weight of the initial state in row i."""
  return jnp.exp(-slope * (rows + 1).astype(jnp.float32))


def to_end(slope, rows, length):
  """Returns exp(-s (n - 1 - i)), row i's weight in the state after n rows."""
  gap = (length - 1 - rows).astype(jnp.float32)
  return jnp.exp(-slope * jnp.maximum(gap, 0.0))


def over(slope, length):
  """Returns exp(-s n), the decay of a state over n rows."""
  return jnp.exp(-slope * jnp.asarray(length).astype(jnp.float32))


def default_slopes(num_heads):
  """Returns ALiBi's slopes 2**(-8 (h + 1) / H) (arXiv 2108.12409, section 3).
  """
  h = jnp.arange(1, num_heads + 1, dtype=jnp.float32)
  return jnp.exp2(-8.0 * h / num_heads)


def prefix(x_BxNxHxDxE, slope_H):
  """Returns y_n = sum_{m <= n} exp(-s (n - m)) x_m on axis 1, in O(N) work.

  It takes one matmul per level of a tree of width GROUP. An accelerator then
  needs a few kernel launches, where a loop would need N.
  """
  n = x_BxNxHxDxE.shape[1]
  if n > GROUP:
    return _grouped_prefix(x_BxNxHxDxE, slope_H)
  i = jnp.arange(n)
  decay_HxNxN = within(slope_H[:, None, None], i[None, :, None],
                       i[None, None, :])
  return jnp.einsum('hnm,bmhde->bnhde', decay_HxNxN, x_BxNxHxDxE,
                    precision=lax.Precision.HIGHEST)


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


def before_parts(sums_BxHxPxDxE, slope_H, first_BxHxDxE, rows):
  """Returns the state before each part of `rows` tokens, given their sums."""
  if first_BxHxDxE is None:
    first_BxHxDxE = jnp.zeros_like(sums_BxHxPxDxE[:, :, 0])
  parts = jnp.concatenate(
      [first_BxHxDxE[:, :, None], sums_BxHxPxDxE[:, :, :-1]], axis=2)
  return _over_parts(parts, slope_H * rows)


def after_parts(sums_BxHxPxDxE, slope_H, last_BxHxDxE, rows, length):
  """Returns the gradient of the state after each part, given their sums."""
  if last_BxHxDxE is None:
    last_BxHxDxE = jnp.zeros_like(sums_BxHxPxDxE[:, :, 0])
  left_H = over(slope_H, length - (sums_BxHxPxDxE.shape[2] - 1) * rows)
  end = sums_BxHxPxDxE[:, :, -1] + left_H[:, None, None] * last_BxHxDxE
  later = jnp.concatenate(
      [end[:, :, None], sums_BxHxPxDxE[:, :, -2:0:-1]], axis=2)
  after = _over_parts(later, slope_H * rows)[:, :, ::-1]
  return jnp.concatenate([after, last_BxHxDxE[:, :, None]], axis=2)


def _over_parts(x_BxHxPxDxE, slope_H):
  return jnp.swapaxes(prefix(jnp.swapaxes(x_BxHxPxDxE, 1, 2), slope_H), 1, 2)
