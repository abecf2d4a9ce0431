"""Padding that is not computed: a batch is cut to where only padding follows.

Which examples make up an update stays as it is. Sorted by length they fall
into microbatches of similar ones, each of which is computed at the shortest of
a few lengths that holds it: the same sums, of fewer zeros.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lra.objectives.base import Objective


def at_fitting(function: Callable, objective: Objective,
               lengths: tuple[int, ...], batch, *args) -> Any:
  """function(batch, *args) with the batch at the shortest length that holds it.

  Args:
    function: its results have one shape, whatever the length.
    objective: says how a batch is cut.
    lengths: rising, the last that of the batch; one or none is its own.
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
