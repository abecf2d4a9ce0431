"""Decay factors between a block of rows and the state around it, in Triton.

`decays` computes them in one of two ways, with equal members:
  start: scale exp(-s (i + 1)), weight of the state before the block in row i;
  end: exp(-s (n - 1 - i)), weight of row i in the state after n existing rows;
  over(): exp(-s n), weight of the state before in the state after;
  within(back): scale exp(-s |i - j|) if row i sees row j, else 0. Rows see
    earlier rows, or with `back` later rows.
See `kernels.chunks`.
"""

import math

import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import triton as plt

from kernels import chunks

SMALL = 32  # rows up to which a program keeps distances in registers


def decays(slopes_ref, at, n, scale):
  """Returns the decays of block n.

  Args:
    slopes_ref: float32 [H].
    at: triton_blocks.Place.
    n: the block, traced.
    scale: a number.
  """
  # Loaded for every block, or Triton would keep the decays in registers.
  slope = plt.load(slopes_ref.at[at.h])
  rows = exist = at.shape.rows
  if at.shape.length % rows:
    exist = jnp.minimum(at.shape.length - n * rows, rows)
  return (_Kept if rows <= SMALL else _Fresh)(slope, rows, exist, scale)


class _Kept:
  """Decays from distances kept in registers, equal for all blocks."""

  def __init__(self, slope, rows, exist, scale):
    self._slope, self._exist, self._scale = slope, exist, scale
    self._rows = lax.broadcasted_iota(jnp.int32, (rows,), 0)
    self.start = chunks.from_start(slope, self._rows) * scale
    self.end = chunks.to_end(slope, self._rows, exist)

  def over(self):
    return chunks.over(self._slope, self._exist)

  def within(self, back=False):
    rows, cols = self._rows[:, None], self._rows[None]
    if back:
      rows, cols = cols, rows
    return chunks.within(self._slope, rows, cols) * self._scale


class _Fresh:
  """Decays from distances recomputed for every block, by powers of two."""

  def __init__(self, slope, rows, exist, scale):
    self._speed, self._scale = slope * -math.log2(math.e), scale
    self._exist = jnp.asarray(exist).astype(jnp.float32)
    self._cols = lax.broadcasted_iota(jnp.float32, (rows,), 0)
    # Depends on a loaded value, so that no distance is hoisted from the loop.
    self._rows = self._cols + slope * 0.0
    left = jnp.maximum(self._exist - 1 - self._rows, 0.0)
    self.start = jnp.exp2(self._speed * (self._rows + 1)) * scale
    self.end = jnp.exp2(self._speed * left)

  def over(self):
    return jnp.exp2(self._speed * self._exist)

  def within(self, back=False):
    rows, cols = self._rows[:, None], self._cols[None]
    gap = cols - rows if back else rows - cols
    decay = jnp.exp2(self._speed * gap) * self._scale
    return jnp.where(gap >= 0, decay, 0.0)
