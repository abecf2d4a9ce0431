"""Sums over the rows of the tiles that a block writes, for Hopper.

The gradient of a bias is the sum of the gradient of q, k and v over the
tokens: a product with ones, of the bfloat16 tiles on their way out.
"""

import jax.numpy as jnp

from kernels import hopper


class Columns:
  """Sums of this warpgroup's columns of `count` tensors; of none if 0.

  Args:
    tools: hopper.Tools.
    ones: scratch memory `Tools.factors(warpgroups, 1)`; None if 0.
    w: this warpgroup.
    count: of how many tensors.
  """

  def __init__(self, tools, ones, w, count):
    self.tools, self.w, self.count = tools, w, count
    if count:
      self.ones, numbers = (view.at[w] for view in tools.views(ones))
      tools.publish((numbers, jnp.ones(numbers.shape, jnp.bfloat16)))

  def zeros(self):
    """float32 tiles [64, 8] in registers; every column will be the sum."""
    return (self.tools.zeros((hopper.TILE, 8)),) * self.count

  def add(self, sums, *tiles):
    """The sums with tiles that have been published."""
    if not self.count:
      return sums
    ones = hopper.turned(self.ones)
    return self.tools.add(
      *(
        (x, [(hopper.turned(tile), ones)])
        for x, tile in zip(sums, tiles, strict=True)
      )
    )

  def store(self, sums, targets, where):
    """Writes to `where` of targets [..., Dh]: this warpgroup's columns."""
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
