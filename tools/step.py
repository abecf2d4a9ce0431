"""Times a compiled training step on random tokens, without a data set.

  python -m tools step --config=configs/simpletron.py:pathx

`run_lra.py --trial` times the whole loop, on the data set.
"""

import argparse
import json
import time
from collections.abc import Sequence

import jax
import numpy as np

from lra.core import machine
from lra.core.terminal import bar
from lra.run import loader, program, provenance
from lra.run.experiment import resolve
from lra.run.process_cache import ProcessCache

SECONDS = 20  # no step begins later


def main(argv: Sequence[str]) -> None:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--steps', type=int, default=100, help='most steps')
  args, config = parser.parse_known_args(argv)
  print(json.dumps(measure(
      resolve(loader.made_by(config)), steps=args.steps), indent=1))


def measure(experiment, *, steps: int) -> dict:
  """Returns JSON fields: the median seconds of a step, its bytes, what ran.

  At most `steps` are made after one to warm up, and none begins after
  `SECONDS`.
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


def drawn_steps(config):
  """Compiles the steps of a config for one device and random tokens.

  Returns a function that trains on one batch of full length and returns its
  metrics; a function that evaluates such a batch and returns the counts; the
  bytes that the training step needs besides its arguments; and the number of
  the mixers' parameters.
  """
  made = program.make(resolve(config), jax.devices()[:1])
  compiled, given = made.compile_train(), made.put_given()
  data, state = drawn_batch(made), made.init()
  scored, evaluated = made.compile_eval(), drawn_batch(made, micro=False)

  def step():
    nonlocal state
    state, metrics = compiled(state, data, given)
    return jax.block_until_ready(metrics)

  return (step, lambda: scored(state.params, state.constants, evaluated),
          compiled.memory_analysis().temp_size_in_bytes,
          program.count_parameters(made.state_shape)['mixer_params'])


def drawn_batch(made, *, micro: bool = True):
  """Makes a random batch of this process: no padding, all weights 1.

  It is for a training step with `micro`, else for an evaluation.
  """
  task, rng = made.objective.task, np.random.default_rng(0)
  size = made.sizes.microbatch if micro else made.sizes.eval_batch
  rows = range(size)[made.rows(size)]
  lead = (*([made.config.train.batch_size // size] if micro else []),
          len(rows))
  draw = {'tokens': lambda shape: rng.integers(1, task.vocab_size, shape),
          'targets': lambda shape: rng.integers(1, task.vocab_size, shape),
          'labels': lambda shape: rng.integers(0, task.num_classes, shape),
          'weights': np.ones,
          'place': lambda shape: np.add.outer(
              size * np.arange(shape[0]), np.array(rows))}
  return {name: draw[name](shape).astype(dtype) for name, (shape, dtype)
          in made.shapes(*lead, micro=micro).items()}
