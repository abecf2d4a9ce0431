"""Measures the overhead of the training loop over the compiled step."""

import contextlib
import dataclasses
import pathlib
import statistics
import tempfile
import time

import jax

from lra.costs import step
from lra.system import machine
from lra.system.terminal import bar
from lra.training.trainer import Trainer

# Time to measure if no number of rounds is given.
SECONDS = 20
LEAST_ROUNDS = 3


def measure(experiment, *, steps: int, rounds: int | None = None,
            drawn: bool = False) -> dict:
  """Times the loop and the bare step alternately.

  Args:
    experiment: an `Experiment`; its run is not kept.
    steps: updates per stretch; the most updates if `rounds` is None.
    rounds: stretches of the loop, each between two of the bare step. If there
      are several, another comes first to warm up. None: about `SECONDS` of
      stretches, but at least `LEAST_ROUNDS`, with fewer steps if necessary.
    drawn: times the step alone, without data: `step.measure`.

  Returns:
    JSON fields: median seconds per step of both; overhead; steps and rounds
    made; peak memory in bytes; compile seconds; identity of the run. The
    overhead is the median ratio of a stretch to its two neighbours, minus one.
  """
  if drawn:
    return step.measure(experiment, steps=steps)
  config = experiment.config
  with (tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Trainer(dataclasses.replace(
            experiment, folder=pathlib.Path(folder)))) as trainer):
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

      def bare():
        trainer.state, _ = trainer.train_step(
            trainer.state, batch, trainer.given)

      start = time.perf_counter()
      if rounds is None:
        steps = _warm_up(looped, steps, trainer)
      elif rounds > 1:
        _seconds(looped, steps, trainer)
      time_of = lambda call: _seconds(call, steps, trainer) / steps
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
        'compile_seconds': trainer.counters.compile_seconds,
        'peak_memory_bytes': machine.peak_memory()}


def _seconds(call, steps, trainer):
  start = time.perf_counter()
  for _ in range(steps):
    call()
  jax.block_until_ready(trainer.state)
  return time.perf_counter() - start


def _warm_up(call, steps, trainer):
  """Makes at most `steps` steps, in the time of one stretch.

  Returns:
    The number of steps made, for all later stretches.
  """
  stretches = 2 * LEAST_ROUNDS + 2
  start, made = time.perf_counter(), 0
  while made < steps and time.perf_counter() - start < SECONDS / stretches:
    call()
    made += 1
  jax.block_until_ready(trainer.state)
  return made


def _enough(made, rounds, start):
  """Returns True once all rounds are made, or the time is over."""
  if rounds is not None:
    return made >= rounds
  return made >= LEAST_ROUNDS and time.perf_counter() - start >= SECONDS
