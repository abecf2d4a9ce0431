"""Biases of distances: one number of each head for each key minus query.

Shapes: H heads, L queries, S keys; I rows and J columns of a tile.
"""

import jax
import jax.numpy as jnp


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
  shape = jax.ShapeDtypeStruct((heads, rows + cols - 1), x_HxIxJ.dtype)
  transpose = jax.linear_transpose(lambda x: along_diagonals(x, rows), shape)
  return transpose(x_HxIxJ)[0]
