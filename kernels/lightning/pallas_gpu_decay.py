"""Decay factors within a chunk for the Hopper backward kernel."""

from kernels import chunks


class Decay:
  """`chunks.within` and `chunks.from_start` of a tile, times the scale.

  Args:
    tools: hopper.Tools.
    slope: slope of the head.
    scale: factor of the result.
    kept: whether they stay in registers, 34 per thread; otherwise every chunk
      recomputes them.
  """

  def __init__(self, tools, slope, scale, kept):
    self.tools, self.slope, self.scale = tools, slope, scale
    self._kept = None
    if kept:
      self._kept = self._within(0), self._from_start(0)

  def within(self, zero):
    """Returns a float32 tile [64, 64]; `zero` is 0, unknown to the compiler.

    With a known 0 the compiler would compute the tile once and keep it.
    """
    return self._kept[0] if self._kept else self._within(zero)

  def from_start(self, zero):
    """Returns float32 [64]; for `zero` see `within`."""
    return self._kept[1] if self._kept else self._from_start(zero)

  def _within(self, zero):
    rows, cols = self.tools.index(0) + zero, self.tools.index(1)
    return chunks.within(self.slope, rows, cols) * self.scale

  def _from_start(self, zero):
    rows = self.tools.index() + zero
    return chunks.from_start(self.slope, rows) * self.scale
