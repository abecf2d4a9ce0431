"""Costs of a config, and of all models side by side.

`python -m lra.benchmark --config=configs/simpletron.py:listops_mini` runs, in
turns, the loop that `run_lra.py` runs (data, dispatch, logging, progress bar)
and the compiled step alone on a batch that is already there, and prints
seconds per step of both, the loop's overhead and the peak memory.

`--memory` and `--speed` write the tables of all models, `memory.md` and
`speed.md`, to --out; see `lra.costs`.
"""

import json
import pathlib
import statistics
import tempfile
import time

import jax
from absl import flags

from lra import files, machine
from lra import main as main_lib
from lra.costs import tables
from lra.errors import UserError
from lra.training import train

STEPS = flags.DEFINE_integer(
    'steps', 100, 'Steps per stretch.', lower_bound=1)
ROUNDS = flags.DEFINE_integer(
    'rounds', 25, 'Stretches of the loop; medians are reported.',
    lower_bound=1)
MEMORY = flags.DEFINE_bool('memory', False, 'Table of memory of all models.')
SPEED = flags.DEFINE_bool('speed', False, 'Table of step times of all models.')
OUT = flags.DEFINE_string(
    'out', str(pathlib.Path(__file__).parents[1] / 'results'),
    'Where the tables go.')


def measure(config, *, steps: int, rounds: int) -> dict:
  """Times loop and bare step alternately.

  Args:
    config: what to train; nothing of it is kept.
    steps: updates per stretch.
    rounds: stretches of the loop, each between two of the bare step; if more
      than one, another comes first to warm up.

  Returns:
    JSON fields: seconds per step of both (medians), the loop's overhead (the
    median ratio of a stretch to its two neighbours, minus one), peak memory
    in bytes, compile seconds and what ran where.
  """
  with config.unlocked():
    config.train.steps = config.train.eval_every = steps * (2 * rounds + 2)
  with tempfile.TemporaryDirectory() as folder:
    trainer = train.Trainer(config, pathlib.Path(folder))
    with trainer.stepping() as advance:
      batch = jax.device_put(
          trainer.batch(0), trainer.program.batch_sharding(micro=True))
      bare = lambda: trainer.update(batch)
      time_of = lambda call: _seconds(call, steps, trainer) / steps
      if rounds > 1:  # warm up
        time_of(advance)
      bares, loops = [time_of(bare)], []
      for _ in range(rounds):
        loops.append(time_of(advance))
        bares.append(time_of(bare))
    # Neighbours in time share the machine's mood: their ratios are steady.
    overhead = statistics.median(
        2 * loop / (before + after) for before, loop, after in
        zip(bares[:-1], loops, bares[1:], strict=True)) - 1
    return {
        'task': config.task, 'model': config.model.name,
        'batch_size': config.train.batch_size,
        'microbatch_size': config.train.microbatch_size,
        **trainer.identity, 'steps': steps, 'rounds': rounds,
        'loop_s_per_step': statistics.median(loops),
        'bare_s_per_step': statistics.median(bares),
        'overhead': overhead,
        'compile_seconds': trainer.memory.compile_seconds,
        'peak_memory_bytes': machine.peak_memory()}


def _seconds(call, steps, trainer):
  start = time.perf_counter()
  for _ in range(steps):
    call()
  jax.block_until_ready(trainer.state)
  return time.perf_counter() - start


def main() -> int:
  """Prints figures as JSON, or tables; returns the exit code."""
  for name, wanted in (('memory', MEMORY.value), ('speed', SPEED.value)):
    if wanted:
      text = '\n'.join(getattr(tables, name)()) + '\n'
      files.write_all({pathlib.Path(OUT.value) / f'{name}.md': text.encode()})
      print(text)
  if MEMORY.value or SPEED.value:
    return 0
  config = main_lib.config()
  if config is None:
    raise UserError(
        'Nothing to measure: give --config=configs/<model>.py:<task>, '
        '--memory or --speed.')
  main_lib.use_compile_cache(main_lib.CACHE.value)
  print(json.dumps(
      measure(config, steps=STEPS.value, rounds=ROUNDS.value), indent=1))
  return 0


if __name__ == '__main__':
  main_lib.run_command(main)
