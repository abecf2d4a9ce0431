"""Biases of distances: one number of each head for each key minus query.

A bias [H, N I + M J - 1] is of N blocks of I queries and M of J keys, from the
distance of the last query to the first key on; None, of no bias, stays None.

Shapes: H heads; I rows and J columns of a tile; C distances.
"""

import jax
import jax.numpy as jnp

from kernels import varying


def along_diagonals(x_HxC, rows):
  """[H, I, J] whose entry (i, j) is x[I - 1 - i + j], of [H, I + J - 1].

  A row is the row above moved on by one: I copies of x and one entry more,
  read in rows one entry short of a copy. So nothing is gathered.
  """
  heads, count = x_HxC.shape
  copies = jnp.tile(jnp.pad(x_HxC, ((0, 0), (0, 1))), (1, rows))
  # Row i begins at I - 1 + i C of the copies: at I - 1 - i of copy i.
  found = copies[:, rows - 1 :][:, : rows * count].reshape(heads, rows, count)
  return found[..., : count - rows + 1]


def sum_diagonals(x_HxIxJ):
  """[H, I + J - 1]: the transpose of `along_diagonals`, nothing scattered."""
  heads, rows, cols = x_HxIxJ.shape
  # Not `jax.linear_transpose`, which takes nothing that varies over a mesh.
  zeros = varying.zeros((heads, rows + cols - 1), x_HxIxJ.dtype, x_HxIxJ)
  _, transpose = jax.vjp(lambda x: along_diagonals(x, rows), zeros)
  return transpose(x_HxIxJ)[0]


def starts(q_NxBxHxIxDh):
  """int32 [N]: where the bias of each block of queries begins."""
  count, rows = q_NxBxHxIxDh.shape[::3]
  return (count - 1 - jnp.arange(count)) * rows


def tiles(bias_HxC, start, q_BxHxIxDh, k_MxBxHxJxDh):
  """[M, H, I, J] of the block of queries whose bias begins at `start`.

  To be made before a scan over the keys: tile by tile within it, attention took
  half as long again on a processor.
  """
  if bias_HxC is None:
    return None
  rows, (count, cols) = q_BxHxIxDh.shape[2], k_MxBxHxJxDh.shape[::3]
  own = jax.lax.dynamic_slice_in_dim(
    bias_HxC, start, rows + count * cols - 1, axis=1
  )
  bias_HxIxS = along_diagonals(own, rows)
  return bias_HxIxS.reshape(-1, rows, count, cols).transpose(2, 0, 1, 3)


def add_tiles(bias_HxC, start, tiles_MxHxIxJ):
  """`tiles` transposed: each entry plus the sum of its distance."""
  if bias_HxC is None:
    return None
  _, heads, rows, _ = tiles_MxHxIxJ.shape
  tiles_HxIxS = tiles_MxHxIxJ.transpose(1, 2, 0, 3).reshape(heads, rows, -1)
  own = sum_diagonals(tiles_HxIxS)
  own += jax.lax.dynamic_slice_in_dim(bias_HxC, start, own.shape[1], axis=1)
  return jax.lax.dynamic_update_slice_in_dim(bias_HxC, own, start, axis=1)
