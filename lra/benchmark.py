"""Costs of a config: the training loop against the bare compiled step.

`python -m lra.benchmark --config=configs/simpletron.py:listops_mini` runs, in
turns, the loop that `run_lra.py` runs (data, dispatch, logging, progress bar)
and the compiled step alone on a batch that is already there, and prints
seconds per step of both, the loop's overhead and the peak memory.
"""

import json
import pathlib
import statistics
import tempfile
import time

import jax
from absl import flags

from lra import main as main_lib
from lra import result, train
from lra.errors import UserError

STEPS = flags.DEFINE_integer(
    'steps', None, 'Steps per stretch; by default config.train.log_every.',
    lower_bound=1)
ROUNDS = flags.DEFINE_integer(
    'rounds', 5, 'Stretches of each kind; medians are reported.',
    lower_bound=1)


def measure(config, *, steps: int, rounds: int) -> dict:
  """Times loop and bare step alternately.

  Args:
    config: what to train; nothing of it is kept.
    steps: updates per stretch.
    rounds: stretches of each kind; if more than one, another one of each
      comes first to warm up.

  Returns:
    JSON fields: seconds per step of both (medians), their ratio minus one,
    peak memory in bytes, compile seconds and what ran where.
  """
  with config.unlocked():
    config.train.log_every = steps
    config.train.steps = config.train.eval_every = steps * (rounds + 2)
  warm_up = int(rounds > 1)
  with tempfile.TemporaryDirectory() as folder:
    trainer = train.Trainer(config, pathlib.Path(folder))
    loop, bare = [], []
    with trainer.stepping() as advance:
      batch = trainer.batch(0)
      for _ in range(rounds + warm_up):
        loop.append(_seconds(advance, steps, trainer))
        bare.append(_seconds(lambda: trainer.update(batch), steps, trainer))
    loop, bare = (statistics.median(x[warm_up:]) / steps for x in (loop, bare))
    return {
        'task': config.task, 'model': config.model.name,
        'batch_size': config.train.batch_size,
        'microbatch_size': config.train.microbatch_size,
        **trainer.identity, 'steps': steps, 'rounds': rounds,
        'loop_s_per_step': loop, 'bare_s_per_step': bare,
        'overhead': loop / bare - 1,
        'compile_seconds': trainer.memory.compile_seconds,
        'peak_memory_bytes': result.peak_memory()}


def _seconds(call, steps, trainer):
  start = time.perf_counter()
  for _ in range(steps):
    call()
  jax.block_until_ready(trainer.state)
  return time.perf_counter() - start


def main() -> int:
  """Prints the figures as JSON; returns the exit code."""
  config = main_lib.config()
  if config is None:
    raise UserError(
        'Nothing to measure: give --config=configs/<model>.py:<task>.')
  main_lib.use_compile_cache(main_lib.CACHE.value)
  steps = STEPS.value or config.train.log_every
  print(json.dumps(measure(config, steps=steps, rounds=ROUNDS.value),
                   indent=1))
  return 0


if __name__ == '__main__':
  main_lib.run_command(main)
