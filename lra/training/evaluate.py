"""What the scores of a split are made from."""

import functools
from collections.abc import Callable

import jax

from lra.data import batches
from lra.data.prepared import Split
from lra.training.program import Program

AHEAD = 2  # batches sent off before the first of them is done


def evaluate(eval_step: Callable, program: Program, scored, split: Split,
             tick: Callable[[], bool] = lambda: True) -> list | None:
  """Counts of a split, every example once.

  Args:
    eval_step: `program.compile_eval()`.
    program: the program of that step.
    scored: `params` and `constants` of the model.
    split: the examples.
    tick: called after each batch was sent off; False ends the evaluation.

  Returns:
    What `Objective.scores` takes; None where `tick` ended it.
  """
  under_way, counts = [], []
  config = program.config
  for batch in batches.eval_batches(
      functools.partial(program.objective.batch, split), len(split),
      batch_size=config.train.eval_batch_size, seed=config.seed):
    under_way.append(eval_step(scored['params'], scored['constants'], batch))
    if len(under_way) > AHEAD:
      counts.append(jax.device_get(under_way.pop(0)))
    if not tick():
      return None
  return counts + jax.device_get(under_way)
