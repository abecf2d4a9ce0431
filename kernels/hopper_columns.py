"""Column sums of the tiles that a block writes, for Hopper.

The gradient of a bias is the sum of the gradients of q, k and v over tokens. It
is computed as a matmul of the bfloat16 tiles with ones, before they are stored.
"""

import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels import hopper


class Columns:
  """Column sums of `count` tensors for one warpgroup; nothing if 0.

  Args:
    tools: hopper.Tools.
    ones: scratch memory `Tools.factors(n, 1)`; None if `count` is 0. With
      n = 1 the first warpgroup fills it for all, and the block must meet before
      a sum; otherwise every warpgroup fills its own.
    w: number of the warpgroup.
    count: number of tensors.
  """

  def __init__(self, tools, ones, w, count):
    self.tools, self.w, self.count = tools, w, count
    if not count:
      return
    self.tiles, numbers = tools.views(ones)
    copies = numbers.shape[0]
    self.own = w if copies > 1 else hopper.numbers(1)[0]
    numbers = numbers.at[self.own]

    @pl.when((w == 0) | (copies > 1))
    def _():
      tools.publish((numbers, jnp.ones(numbers.shape, jnp.bfloat16)))

  def zeros(self):
    """Returns float32 tiles [64, 8] in registers; each column gets the sum."""
    return (self.tools.zeros((hopper.TILE, 8)),) * self.count

  def add(self, sums, *tiles, zero=0):
    """Adds published tiles to the sums.

    Pass a `zero` unknown to the compiler, so that it does not compute the
    address of the ones before a loop.
    """
    if not self.count:
      return sums
    ones = hopper.turned(self.tiles.at[self.own + zero])
    return self.tools.add(*((x, [(hopper.turned(tile), ones)])
                            for x, tile in zip(sums, tiles, strict=True)))

  def store(self, sums, targets, where):
    """Writes this warpgroup's columns to `where` of targets [..., Dh]."""
    if not self.count:
      return
    for x, target in zip(sums, targets, strict=True):
      target[(*where, hopper.tile(self.w))] = jnp.sum(x, axis=1) / 8


def like(inputs, parts, description):
  """Returns descriptions of the sums [B, H, parts, Dh] of q, k, v, or None.

  Args:
    inputs: `kernels.inputs.Inputs`; without a bias the result is None.
    parts: number of parts of the sequence.
    description: function of shape and dtype.
  """
  if inputs.bias is None:
    return (None,) * 3
  b, _, h, d = inputs.shape
  shape = b, h, parts, d
  return tuple(description(shape, jnp.float32) for _ in range(3))


def total(sums):
  """Returns the bias's gradient [3, H, Dh] from the sums of `like`, or None."""
  if sums[0] is None:
    return None
  return jnp.stack([x.sum((0, 2)) for x in sums])
