"""What the training loop costs on top of the compiled step."""

import contextlib
import pathlib
import statistics
import tempfile
import time

import jax

from lra import machine
from lra.costs import step
from lra.terminal import bar
from lra.training.trainer import Trainer

# Of measuring, where no number of rounds is asked for.
SECONDS = 20
LEAST_ROUNDS = 3


def measure(config, *, steps: int, rounds: int | None = None,
            drawn: bool = False) -> dict:
  """Times loop and bare step alternately.

  Args:
    config: what to train; nothing of it is kept.
    steps: updates per stretch; at most so many if `rounds` is None.
    rounds: stretches of the loop, each between two of the bare step; if not
      one, another comes first to warm up. None: as many as take about
      `SECONDS`, but `LEAST_ROUNDS` at least, of as few steps as that needs.
    drawn: times the step alone, without data: `step.measure`.

  Returns:
    JSON fields: seconds per step of both (medians), the loop's overhead (the
    median ratio of a stretch to its two neighbours, minus one), steps and
    rounds made, peak memory in bytes, compile seconds and what ran where.
  """
  if drawn:
    return step.measure(config, steps=steps)
  with (tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Trainer(
            config, pathlib.Path(folder))) as trainer):
    trainer.compile()
    batch = jax.device_put(
        trainer.batch(0), trainer.program.batch_shardings(micro=True))
    with bar(total=rounds and steps * (rounds + (rounds > 1)),
             what='benchmark') as shown:

      def looped():
        trainer.update(trainer.next_batch())
        shown.update()
        if trainer.step % config.train.log_every == 0:
          shown.set_postfix_str(trainer.log(), refresh=False)

      start = time.perf_counter()
      if rounds is None:
        steps = _warm_up(looped, steps, trainer)
      elif rounds > 1:
        _seconds(looped, steps, trainer)
      time_of = lambda call: _seconds(call, steps, trainer) / steps
      bare = lambda: trainer.send(batch)
      bares, loops = [time_of(bare)], []
      while not _enough(len(loops), rounds, start):
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
        **trainer.identity, 'steps': steps, 'rounds': len(loops),
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


def _warm_up(call, steps, trainer):
  """Makes at most so many steps, while the fewest rounds are affordable.

  Returns:
    How many steps were made: those of a stretch.
  """
  stretches = 2 * LEAST_ROUNDS + 2
  start, made = time.perf_counter(), 0
  while made < steps and time.perf_counter() - start < SECONDS / stretches:
    call()
    made += 1
  jax.block_until_ready(trainer.state)
  return made


def _enough(made, rounds, start):
  """Whether these are the rounds asked for, or all that there is time for."""
  if rounds is not None:
    return made >= rounds
  return made >= LEAST_ROUNDS and time.perf_counter() - start >= SECONDS
