"""What a block of rows and the state around it see of each other, in Triton.

`decays` gives it in one of two ways, with the same members:
  start: scale exp(-s (i + 1)), of the state in front of the block by row i;
  end: exp(-s (n - 1 - i)), of row i by the state behind the n that exist;
  over(): exp(-s n), of the state in front by that behind;
  within(back): scale exp(-s |i - j|) where row i sees row j, else 0: those in
    front of it, or with `back` those behind it.
See `kernels.chunks`.
"""

import math

import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import triton as plt

from kernels import chunks

SMALL = 32  # rows whose distances a program can keep


def decays(slopes_ref, at, n, scale):
  """The decays of block n.

  Args:
    slopes_ref: float32 [H].
    at: triton_blocks.Place.
    n: the block, traced.
    scale: a number.
  """
  # Loaded for every block, or Triton keeps the decays in registers all the way.
  slope = plt.load(slopes_ref.at[at.h])
  rows = exist = at.shape.rows
  if at.shape.length % rows:
    exist = jnp.minimum(at.shape.length - n * rows, rows)
  return (_Kept if rows <= SMALL else _Fresh)(slope, rows, exist, scale)


class _Kept:
  """From distances that stay in registers: they do not depend on the block."""

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
  """From distances made for every block, by powers of two."""

  def __init__(self, slope, rows, exist, scale):
    self._speed, self._scale = slope * -math.log2(math.e), scale
    self._exist = jnp.asarray(exist).astype(jnp.float32)
    self._cols = lax.broadcasted_iota(jnp.float32, (rows,), 0)
    # Of what was loaded, so that no distance is known in front of the loop.
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
