"""Parameters of every model on every task, counted without computing them."""

import importlib

import jax

from lra.report import catalogue
from lra.training import program

TASKS = ('listops', 'text', 'retrieval')


def parameters(model: str, task: str) -> int:
  """Trainable parameters of `configs/<model>.py:<task>`.

  One block is traced and counted `num_layers` times: all are alike.
  """
  config = importlib.import_module(f'configs.{model}').get_config(task)
  layers, config.encoder.num_layers = config.encoder.num_layers, 1
  sizes = program.sizes(
      program.make(config, jax.devices()[:1]).state_shape.params)
  blocks = sum(n for path, n in sizes.items() if '/block_0/' in f'/{path}')
  return sum(sizes.values()) + (layers - 1) * blocks


def table() -> dict[str, dict[str, int]]:
  """model -> task -> parameters, of all models on `TASKS`."""
  return {e.name: {t: parameters(e.name, t) for t in TASKS}
          for e in catalogue.read()}
