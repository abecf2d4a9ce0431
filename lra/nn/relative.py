"""Softmax attention with a bias for each distance between two tokens.

Shapes: B batch, L length, H heads, Dh head width, R queries at a time, and S =
2 L - 1 distances of keys from queries: entry L - 1 is distance 0, later entries
are of keys after the query.
"""

import jax
import jax.numpy as jnp
import numpy as np

from lra.nn import partials

ROWS = 128  # queries at a time


def distances(length: int) -> np.ndarray:
  """Key minus query, int32 [S]: -(L - 1) ... L - 1."""
  return np.arange(1 - length, length, dtype=np.int32)


def attend(q_BxLxHxDh: jax.Array, k_BxLxHxDh: jax.Array, v_BxLxHxDh: jax.Array,
           mask_BxL: jax.Array, bias_HxS: jax.Array, *, scale: float,
           rows: int = ROWS) -> jax.Array:
  """softmax_j(scale q_i k_j + bias_(j - i)) v_j per head, [B, L, H, Dh].

  By blocks of queries, each computed again in the backward pass: memory is
  linear in L.

  Args:
    q_BxLxHxDh, k_BxLxHxDh, v_BxLxHxDh: of one dtype.
    mask_BxL: bool, True = the key takes part; without any the output is 0.
    bias_HxS: float32; its gradient is summed without scattering.
    scale: factor of the products.
    rows: queries of a block.
  """
  B, L, H, Dh = q_BxLxHxDh.shape
  rows = min(rows, L)
  padding = -L % rows
  q = jnp.pad(q_BxLxHxDh, ((0, 0), (0, padding), (0, 0), (0, 0)))
  q_NxBxHxRxDh = q.reshape(B, -1, rows, H, Dh).transpose(1, 0, 3, 2, 4)
  # In float32 the gradients of all blocks are summed in it too.
  keys, values = (x.swapaxes(1, 2).astype(jnp.float32)
                  for x in (k_BxLxHxDh, v_BxLxHxDh))
  forbidden_Bx1x1xL = partials.forbid(mask_BxL)[:, None, None]
  # Queries that pad the last block are as far from the keys as any.
  bias_HxS = jnp.pad(bias_HxS, ((0, 0), (padding, 0)))

  @jax.checkpoint
  def one(block):
    q_BxHxRxDh, start = block
    # Key 0 seen from the block's last query comes first.
    own_HxS = jax.lax.dynamic_slice_in_dim(
        bias_HxS, L + padding - rows - start, L + rows - 1, axis=1)
    bias_BxHxRxL = along_diagonals(own_HxS, rows) + forbidden_Bx1x1xL
    k_BxHxLxDh, v_BxHxLxDh = keys.astype(q.dtype), values.astype(q.dtype)
    part = partials.partial_softmax(
        q_BxHxRxDh, k_BxHxLxDh, v_BxHxLxDh, scale=scale, bias=bias_BxHxRxL)
    return partials.normalise(part).astype(v_BxLxHxDh.dtype)

  o_NxBxHxRxDh = jax.lax.map(
      one, (q_NxBxHxRxDh, jnp.arange(0, L + padding, rows)))
  o_BxNxRxHxDh = o_NxBxHxRxDh.transpose(1, 0, 3, 2, 4)
  return o_BxNxRxHxDh.reshape(B, -1, H, Dh)[:, :L]


def along_diagonals(x_HxS: jax.Array, rows: int) -> jax.Array:
  """[H, R, C] whose entry (r, c) is x[R - 1 - r + c], of [H, R + C - 1].

  A row is the row above moved on by one: R copies of x and one entry more, read
  in rows one entry short of a copy.
  """
  H, S = x_HxS.shape
  copies = jnp.tile(jnp.pad(x_HxS, ((0, 0), (0, 1))), (1, rows))
  # Row r begins at R - 1 + r S of the copies: at R - 1 - r of copy r.
  found = copies[:, rows - 1:][:, :rows * S].reshape(H, rows, S)
  return found[..., :S - rows + 1]
