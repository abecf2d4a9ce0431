"""Measures a compiled step on random tokens instead of data."""

import time

import jax
import numpy as np

from lra.system import machine
from lra.system.terminal import bar
from lra.training import program, provenance
from lra.training.process_cache import ProcessCache

SECONDS = 20  # after this, no other step begins


def measure(experiment, *, steps: int) -> dict:
  """Times steps on one batch of full length, without a data set.

  Args:
    experiment: an `Experiment`; its run is not kept.
    steps: the most steps. No step begins after `SECONDS`, but at least one is
      made. One more comes first to warm up.

  Returns:
    JSON fields: median seconds of a step; steps made; bytes that a step needs
    besides its arguments; peak memory in bytes; compile seconds; identity of
    the run.

  Raises:
    UserError: it cannot be run here; the message names the field.
  """
  made = program.make(experiment)
  (made, step), compile_seconds = program.timed(made.fit_train)
  state, given = made.init(), made.put_given()
  batch = made.put(drawn_batch(made), micro=True)
  seconds, start = [], time.perf_counter()
  with bar(total=steps + 1, what='benchmark') as shown:
    while len(seconds) <= steps and (
        len(seconds) < 2 or time.perf_counter() - start < SECONDS):
      (state, _), took = program.timed(
          lambda state: jax.block_until_ready(step(state, batch, given)), state)
      seconds.append(took)
      shown.update()
  config = experiment.config
  return {
      'task': config.task, 'model': config.model.name,
      'length': made.objective.seq_len,
      'batch_size': config.train.batch_size,
      'drawn_tokens': True, **provenance.of_run(made, ProcessCache()),
      'steps': len(seconds) - 1,
      'bare_s_per_step': float(np.median(seconds[1:])),
      'step_bytes': step.memory_analysis().temp_size_in_bytes,
      'compile_seconds': compile_seconds,
      'peak_memory_bytes': machine.peak_memory()}


def drawn_batch(made):
  """Makes a random batch of this process: no padding, all weights 1."""
  t, task = made.config.train, made.objective.task
  rng = np.random.default_rng(0)
  micro = made.sizes.microbatch
  rows = range(micro)[made.rows(micro)]
  lead = t.batch_size // micro, len(rows)
  draw = {'tokens': lambda shape: rng.integers(1, task.vocab_size, shape),
          'labels': lambda shape: rng.integers(0, task.num_classes, shape),
          'weights': np.ones,
          'place': lambda shape: np.add.outer(
              micro * np.arange(shape[0]), np.array(rows))}
  return {name: draw[name](shape).astype(dtype) for name, (shape, dtype)
          in made.shapes(*lead, micro=True).items()}
