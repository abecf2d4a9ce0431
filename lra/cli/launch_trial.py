"""Runs --trial: a few steps of --config, of which nothing is kept."""

import jax

from lra.cli import launch
from lra.core import machine
from lra.run import trial
from lra.run.experiment import Experiment
from lra.run.trainer import Diverged


def run(experiment: Experiment) -> int:
  """Makes the trial and prints the estimate; returns the exit code."""
  try:
    made = trial.measure(experiment)
  except Diverged:
    print('diverged: the loss was not finite: try a smaller '
          'config.train.learning_rate.')
    return launch.EXIT['diverged']
  except jax.errors.JaxRuntimeError as error:
    if not machine.out_of_memory(error):
      raise
    print('oom: the device has too little memory: choose a smaller '
          'config.train.microbatch_size or config.encoder.remat=True.')
    return launch.EXIT['oom']
  print(f'trial of {experiment.config.model.name} on {experiment.task.name}: '
        f'{made.tried} of {made.steps:,} steps; nothing is recorded or kept.\n'
        f'{made}')
  if experiment.task.longer:
    print('The tests of other lengths after the test are not counted.')
  return 0
