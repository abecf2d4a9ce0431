"""Evaluates a split: runs the evaluation step on all of its examples."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lra.data import batches
from lra.data.prepared import Split, lengths
from lra.training.program import Program

AHEAD = 2  # batches dispatched before the first of them is done


def order(program: Program, split: Split) -> np.ndarray:
  """Returns the order in which examples are evaluated, int [N].

  They are sorted by length if batches of short examples cost less.
  """
  if len(program.lengths) == 1:
    return np.arange(len(split))
  return np.argsort(lengths(split), kind='stable')


def evaluate(eval_step: Callable, program: Program, scored, split: Split,
             tick: Callable[[Any], bool] = lambda counted: True) -> list | None:
  """Evaluates a split, every example once.

  Args:
    eval_step: `program.compile_eval()`.
    program: the program of that step.
    scored: `params` and `constants` of the model.
    split: the examples.
    tick: called with the coming counts of each dispatched batch; False ends
      the evaluation.

  Returns:
    Counts for `Objective.scores`, with examples in their `order`; None if
    `tick` ended the evaluation.
  """
  counts = []
  size = program.sizes.eval_batch
  for batch in batches.eval_batches(
      functools.partial(program.objective.batch, split), order(program, split),
      batch_size=size, seed=program.config.seed, rows=program.rows(size)):
    counts.append(eval_step(
        scored['params'], scored['constants'], program.put(batch, micro=False)))
    if not tick(counts[-1]):
      return None
    if len(counts) > AHEAD:
      jax.block_until_ready(counts[-1 - AHEAD])
  return jax.device_get(counts)  # one transfer: no batch waits for the host
