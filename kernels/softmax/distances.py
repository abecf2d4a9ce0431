"""Biases of attention: a number for each head and distance of key and query.

A bias [H, N I + M J - 1] covers N blocks of I queries and M of J keys. It
starts at the distance of the first key and the last query. C counts distances.
"""

import jax
import jax.numpy as jnp

from lra.kernels import axes


def refuse(kernel, bias, dropout_rate):
  """Raises NotImplementedError for what only 'dense' and 'chunked' compute."""
  if bias:
    raise NotImplementedError(f"kernel='{kernel}' takes no bias of distances: "
                              "use 'chunked' or 'dense'")
  if dropout_rate:
    raise NotImplementedError(f"kernel='{kernel}' drops no attention weights: "
                              "use 'chunked', 'dense' or a dropout rate of 0")


def along_diagonals(x_HxC, rows):
  """Maps [H, I + J - 1] to [H, I, J] with entry (i, j) = x[I - 1 - i + j].

  Each row is the row above shifted by one. So x, padded by one entry, is
  repeated I times and read in rows one entry shorter, without a gather.
  """
  heads, count = x_HxC.shape
  copies = jnp.tile(jnp.pad(x_HxC, ((0, 0), (0, 1))), (1, rows))
  # Row i starts at I - 1 + i C of the copies: at I - 1 - i of copy i.
  found = copies[:, rows - 1 :][:, : rows * count].reshape(heads, rows, count)
  return found[..., : count - rows + 1]


def sum_diagonals(x_HxIxJ):
  """Transposes `along_diagonals`: sums [H, I, J] to [H, I + J - 1]."""
  heads, rows, cols = x_HxIxJ.shape
  # Not `jax.linear_transpose`: it rejects values that vary over a mesh.
  zeros = axes.zeros((heads, rows + cols - 1), x_HxIxJ.dtype, x_HxIxJ)
  _, transpose = jax.vjp(lambda x: along_diagonals(x, rows), zeros)
  return transpose(x_HxIxJ)[0]


def starts(q_NxBxHxIxDh):
  count, rows = q_NxBxHxIxDh.shape[::3]
  return (count - 1 - jnp.arange(count)) * rows


def tiles(bias_HxC, start, q_BxHxIxDh, k_MxBxHxJxDh):
  """Returns bias tiles [M, H, I, J] of a block of queries, from `start` on.

  Call this before a scan over the keys. If the scan computes them tile by tile,
  attention takes 1.5 times as long on a CPU.
  """
  if bias_HxC is None:
    return None
  rows, (count, cols) = q_BxHxIxDh.shape[2], k_MxBxHxJxDh.shape[::3]
  own = jax.lax.dynamic_slice_in_dim(bias_HxC, start, rows + count * cols - 1,
                                     axis=1)
  bias_HxIxS = along_diagonals(own, rows)
  return bias_HxIxS.reshape(-1, rows, count, cols).transpose(2, 0, 1, 3)


def add_tiles(bias_HxC, start, tiles_MxHxIxJ):
  """Transposes `tiles`: adds the tiles at each distance to the bias."""
  if bias_HxC is None:
    return None
  _, heads, rows, _ = tiles_MxHxIxJ.shape
  tiles_HxIxS = tiles_MxHxIxJ.transpose(1, 2, 0, 3).reshape(heads, rows, -1)
  own = sum_diagonals(tiles_HxIxS)
  own += jax.lax.dynamic_slice_in_dim(bias_HxC, start, own.shape[1], axis=1)
  return jax.lax.dynamic_update_slice_in_dim(bias_HxC, own, start, axis=1)
