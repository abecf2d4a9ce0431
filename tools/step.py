"""Times a training step: in the loop, compiled, and on random tokens.

  python -m tools step --config=configs/simpletron.py:listops_mini
  python -m tools step --config=configs/simpletron.py:pathx --drawn

In turns it times the loop of `run_lra.py` (data, dispatch, logging, progress
bar) and the compiled step alone, always on the same batch. `--drawn` times the
compiled step on random tokens of full length, without a data set.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Sequence

import jax
import numpy as np

from lra.core import machine
from lra.core.terminal import bar
from lra.run import loader, program, provenance
from lra.run.experiment import resolve
from lra.run.process_cache import ProcessCache
from lra.run.trainer import Trainer

# Seconds to measure if `rounds` is None. On random tokens, no step begins after
# so many seconds.
SECONDS = 20
LEAST_ROUNDS = 3


def main(argv: Sequence[str]) -> None:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--drawn', action='store_true')
  parser.add_argument('--steps', type=int, default=100, help='steps per '
                      'stretch; the most steps without --rounds')
  parser.add_argument('--rounds', type=int, help='stretches of the loop; by '
                      f'default as many as fit in {SECONDS} s, at least '
                      f'{LEAST_ROUNDS}')
  args, config = parser.parse_known_args(argv)
  print(json.dumps(measure(
      resolve(loader.made_by(config)), steps=args.steps, rounds=args.rounds,
      drawn=args.drawn), indent=1))


def measure(experiment, *, steps: int, rounds: int | None = None,
            drawn: bool = False) -> dict:
  """Times the loop and the bare step alternately.

  Args:
    experiment: an `Experiment`; its run is not kept.
    steps: updates per stretch; the most updates if `rounds` is None.
    rounds: stretches of the loop, each between two of the bare step. If there
      are several, another comes first to warm up. None: about `SECONDS` of
      stretches, but at least `LEAST_ROUNDS`, with fewer steps if necessary.
    drawn: times the step alone, without data: `measure_drawn`.

  Returns:
    JSON fields: median seconds per step of both; overhead; steps and rounds
    made; peak memory in bytes; compile seconds; identity of the run. The
    overhead is the median ratio of a stretch to its two neighbours, minus one.
  """
  if drawn:
    return measure_drawn(experiment, steps=steps)
  config = experiment.config
  with (tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Trainer(dataclasses.replace(
            experiment, folder=pathlib.Path(folder)))) as trainer):
    trainer.compile()
    batch = jax.device_put(
        trainer.batch(0), trainer.program.batch_shardings(micro=True))
    with bar(total=rounds and steps * (rounds + (rounds > 1)),
             what='benchmark') as shown:

      def bare():
        trainer.state, _ = trainer.train_step(
            trainer.state, batch, trainer.given)

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
      bares, loops = [time_of(bare)], []
      while not _enough(len(loops), rounds, start):
        loops.append(time_of(looped))
        bares.append(time_of(bare))
    # Other programs slow down neighbouring stretches alike, so their ratio
    # varies less than their times.
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


def measure_drawn(experiment, *, steps: int) -> dict:
  """Times steps on one batch of full length, without a data set.

  Args:
    experiment: an `Experiment`; its run is not kept.
    steps: the most steps. No step begins after `SECONDS`, but at least one is
      made. One more comes first to warm up.

  Returns:
    JSON fields: median seconds of a step, bytes that it needs besides its
    arguments, and the fields of `measure` that apply.

  Raises:
    UserError: the experiment cannot run here; the message names the field.
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


def drawn_step(config):
  """Compiles the training step of a config for one device and random tokens.

  Returns:
    (a function, bytes). The function makes one step on the same batch of full
    length and returns its metrics. The bytes are those that the step needs
    besides its arguments.
  """
  made = program.make(resolve(config), jax.devices()[:1])
  compiled, given = made.compile_train(), made.put_given()
  data, state = drawn_batch(made), made.init()

  def step():
    nonlocal state
    state, metrics = compiled(state, data, given)
    return jax.block_until_ready(metrics)

  return step, compiled.memory_analysis().temp_size_in_bytes


def drawn_batch(made):
  """Makes a random batch of this process: no padding, all weights 1."""
  t, task = made.config.train, made.objective.task
  rng = np.random.default_rng(0)
  micro = made.sizes.microbatch
  rows = range(micro)[made.rows(micro)]
  lead = t.batch_size // micro, len(rows)
  draw = {'tokens': lambda shape: rng.integers(1, task.vocab_size, shape),
          'targets': lambda shape: rng.integers(1, task.vocab_size, shape),
          'labels': lambda shape: rng.integers(0, task.num_classes, shape),
          'weights': np.ones,
          'place': lambda shape: np.add.outer(
              micro * np.arange(shape[0]), np.array(rows))}
  return {name: draw[name](shape).astype(dtype) for name, (shape, dtype)
          in made.shapes(*lead, micro=True).items()}
