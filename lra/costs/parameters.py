"""Parameters of every model on every task, counted without computing them."""

import importlib

import jax
import jax.numpy as jnp

from lra import tasks
from lra.report import catalogue
from lra.training import build, program, step

TASKS = ('listops', 'text', 'retrieval')


def parameters(model: str, task: str) -> int:
  """Trainable parameters of `configs/<model>.py:<task>`.

  One block is traced and counted `num_layers` times: all are alike.
  """
  config = importlib.import_module(f'configs.{model}').get_config(task)
  layers, config.encoder.num_layers = config.encoder.num_layers, 1
  kind = tasks.get(task)
  pair = (2,) if kind.dual else ()
  ids = jnp.ones((1, *pair, build.sequence_length(config, kind)), jnp.int32)
  shapes = jax.eval_shape(
      lambda: build.build(config, kind).init(
          step.stream(0, step.INIT), ids, train=False))
  sizes = program.sizes(shapes['params'])
  blocks = sum(n for path, n in sizes.items() if "['block_0']" in path)
  return sum(sizes.values()) + (layers - 1) * blocks


def table() -> dict[str, dict[str, int]]:
  """model -> task -> parameters, of all models on `TASKS`."""
  return {e.name: {t: parameters(e.name, t) for t in TASKS}
          for e in catalogue.read()}
