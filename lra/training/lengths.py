"""Skips padding: cuts a batch after the end of its longest example.

An update has the same examples as without cutting. Sorted by length, they fall
into microbatches of similar lengths. Each microbatch is computed at the
shortest of a few lengths that holds it. So the sums are equal, but have fewer
zeros.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lra.objectives.base import Objective


def at_fitting(function: Callable, objective: Objective,
               lengths: tuple[int, ...], batch, *args) -> Any:
  """Calls a function with a batch cut to the shortest length that holds it.

  Args:
    function: called as function(batch, *args); the shapes of its results must
      not depend on the length.
    objective: cuts the batch.
    lengths: rising; the last one is that of the batch. The batch is not cut if
      there are fewer than two.
    batch: arrays with the examples along axis 0.
    *args: arrays.
  """

  def at(length):
    return lambda batch, *args: function(objective.cut(batch, length), *args)

  if len(lengths) <= 1:
    return function(batch, *args)
  return jax.lax.switch(
      jnp.searchsorted(jnp.array(lengths), objective.used(batch)),
      [at(length) for length in lengths], batch, *args)
