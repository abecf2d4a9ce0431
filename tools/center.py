"""Times the attention of the study `center`: full, flash, window and sinks.

`python -m tools --center` writes `studies/center.json` into the results. In
each round every arm makes a training step, so that other programs slow all of
them alike. Full attention keeps all its weights in memory (kernel `dense`).
Flash attention computes them in tiles and recomputes them for the gradient (Dao
et al. 2022, arXiv 2205.14135); on a CPU this is the kernel `chunked`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lra.share import quantised
from tools import config_of
from tools.step import drawn_step

# Name of an arm -> its model and the arguments that differ from its config.
ARMS = {
    'full': ('transformer', {'kernel': 'dense'}),
    'flash': ('transformer', {'kernel': 'chunked'}),
    'sliding window': ('sliding_window', {}),
    'attention sinks': ('attention_sink', {})}
TASKS = ('text_mini', 'retrieval_rfc_mini')
ROUNDS = 20


def measure(arms: Mapping[str, tuple[str, Mapping[str, Any]]],
            tasks: Sequence[str], rounds: int) -> list[dict[str, Any]]:
  """Times a training step of each arm on each task, without padding.

  Args:
    arms: name -> (model, changed arguments); the first one is the reference.
    tasks: names of tasks.
    rounds: number of steps of each arm, after one to warm up.

  Returns:
    A row for each task and arm. The ratio is the median over rounds of the time
    divided by that of the reference in the same round.
  """
  rows = []
  for task in tasks:
    steps, sizes = [], []
    for model, changes in arms.values():
      config = config_of(model, task)
      config.dtype = 'float32'
      config.model.update(changes)
      step, size = drawn_step(config)
      steps.append(step)
      sizes.append(size)
    times = np.array(quantised.interleaved(steps, 0, rounds))
    first = next(iter(arms))
    rows += [{
        'arm': arm, 'task': task,
        'seconds per step': round(float(np.median(own)), 4),
        f'time / {first}': round(float(np.median(own / times[0])), 3),
        'temporaries (MiB)': round(size / 2**20, 1)}
             for arm, own, size in zip(arms, times, sizes, strict=True)]
  return rows


def rows() -> list[dict[str, Any]]:
  """Returns the rows of `lra/results/studies/center.json`."""
  return measure(ARMS, TASKS, ROUNDS)
