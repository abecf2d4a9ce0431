"""The scores of a split."""

from collections.abc import Callable, Iterable
from typing import Any

import jax

AHEAD = 2  # batches sent off before the first of them is done


def evaluate(eval_step: Callable, params, constants, batches: Iterable,
             tick: Callable[[], bool] = lambda: True) -> list[Any] | None:
  """What each batch counts, on the host, in order.

  Args:
    eval_step: `program.compile_eval()`.
    params: parameters to be scored.
    constants: the model's other collections.
    batches: numpy batches.
    tick: called after each batch was sent off; False ends the evaluation.

  Returns:
    For `Objective.scores`; None where `tick` ended it.
  """
  under_way, counts = [], []
  for batch in batches:
    under_way.append(eval_step(params, constants, batch))
    if len(under_way) > AHEAD:
      counts.append(jax.device_get(under_way.pop(0)))
    if not tick():
      return None
  return counts + jax.device_get(under_way)
