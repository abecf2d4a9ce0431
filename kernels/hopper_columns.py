"""Sums over the rows of the tiles that a block writes, for Hopper.

The gradient of a bias is the sum of the gradient of q, k and v over the
tokens: a product with ones, of the bfloat16 tiles on their way out.
"""

import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels import hopper


class Columns:
  """Sums of this warpgroup's columns of `count` tensors; of none if 0.

  Args:
    tools: hopper.Tools.
    ones: scratch memory `Tools.factors(n, 1)`; None if `count` is 0. With
      n = 1 the first warpgroup fills it for all, and the block must meet
      before a sum; else every warpgroup has its own.
    w: this warpgroup.
    count: of how many tensors.
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
    """float32 tiles [64, 8] in registers; every column will be the sum."""
    return (self.tools.zeros((hopper.TILE, 8)),) * self.count

  def add(self, sums, *tiles, zero=0):
    """The sums with tiles that have been published.

    A `zero` that the compiler does not know keeps it from making the address
    of the ones ahead of a loop.
    """
    if not self.count:
      return sums
    ones = hopper.turned(self.tiles.at[self.own + zero])
    return self.tools.add(
      *(
        (x, [(hopper.turned(tile), ones)])
        for x, tile in zip(sums, tiles, strict=True)
      )
    )

  def store(self, sums, targets, where):
    """Writes to `where` of targets [..., Dh]: this warpgroup's columns."""
    if not self.count:
      return
    for x, target in zip(sums, targets, strict=True):
      target[(*where, hopper.tile(self.w))] = jnp.sum(x, axis=1) / 8


def like(inputs, parts, description):
  """Descriptions of the sums [B, H, parts, Dh] of q, k and v, or None.

  Args:
    inputs: `kernels.inputs.Inputs`; None without a bias.
    parts: of the sequence.
    description: called with shape and dtype.
  """
  if inputs.bias is None:
    return (None,) * 3
  b, _, h, d = inputs.shape
  shape = b, h, parts, d
  return tuple(description(shape, jnp.float32) for _ in range(3))


def total(sums):
  """The gradient of the bias [3, H, Dh] from the sums of `like`, or None."""
  if sums[0] is None:
    return None
  return jnp.stack([x.sum((0, 2)) for x in sums])
