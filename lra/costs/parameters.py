"""Parameters of every model on every task, counted without computing them."""

import importlib

import jax

from lra.report import catalogue
from lra.training import program, step

TASKS = ('listops', 'text', 'retrieval')


def parameters(model: str, task: str) -> int:
  """Trainable parameters of `configs/<model>.py:<task>`.

  One block is traced and counted `num_layers` times: all are alike.
  """
  config = importlib.import_module(f'configs.{model}').get_config(task)
  config = config.copy_and_resolve_references()
  layers, config.encoder.num_layers = config.encoder.num_layers, 1
  made = program.make(config, jax.devices()[:1])
  batch = {name: jax.ShapeDtypeStruct(shape, dtype) for name, (shape, dtype)
           in made.objective.shapes(1).items()}
  shapes = jax.eval_shape(
      lambda batch: made.model.init(
          step.stream(0, step.INIT), made.objective.inputs(batch),
          train=False), batch)
  sizes = program.sizes(shapes['params'])
  block = sum(n for name, n in sizes.items()
              if name.startswith('encoder/block_0/'))
  return sum(sizes.values()) + (layers - 1) * block


def table() -> tuple[dict[str, dict[str, int]], list[str]]:
  """Parameters of all models on `TASKS`, as far as they can be built.

  Returns:
    model -> task -> parameters; and a sentence for each model whose file or
    config fails, which is left out.
  """
  found, problems = {}, []
  for entry in catalogue.read():
    try:
      found[entry.name] = {t: parameters(entry.name, t) for t in TASKS}
    except Exception as error:  # whatever a file under way may raise
      reason = ' '.join(str(error).split()) or type(error).__name__
      problems.append(f'{entry.name} cannot be built: {reason}')
  return found, problems
