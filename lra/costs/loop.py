"""What the training loop costs on top of the compiled step."""

import contextlib
import pathlib
import statistics
import tempfile
import time

import jax

from lra import machine
from lra.terminal import bar
from lra.training.trainer import Trainer


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
  with (tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Trainer(
            config, pathlib.Path(folder))) as trainer):
    trainer.compile()
    batch = jax.device_put(
        trainer.batch(0), trainer.program.batch_shardings(micro=True))
    with bar(total=config.train.steps, what='benchmark') as shown:

      def looped():
        trainer.update(trainer.batch(trainer.step))
        shown.update()
        if trainer.step % config.train.log_every == 0:
          shown.set_postfix_str(trainer.log(), refresh=False)

      time_of = lambda call: _seconds(call, steps, trainer) / steps
      bare = lambda: trainer.send(batch)
      if rounds > 1:  # warm up
        time_of(looped)
      bares, loops = [time_of(bare)], []
      for _ in range(rounds):
        loops.append(time_of(looped))
        bares.append(time_of(bare))
    # Other programs slow down stretches that are close in time alike, so the
    # ratio of neighbours is steadier than either of them.
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
        'compile_seconds': trainer.progress.compile_seconds,
        'peak_memory_bytes': machine.peak_memory()}


def _seconds(call, steps, trainer):
  start = time.perf_counter()
  for _ in range(steps):
    call()
  jax.block_until_ready(trainer.state)
  return time.perf_counter() - start
