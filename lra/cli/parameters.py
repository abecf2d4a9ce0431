"""Counts the parameters of every model on every task without computing them.

Counting takes seconds, as does finding the state sizes. So `run_lra.py list`
reads the file that `python -m lra.cli.parameters` has written, and counts only
models missing in it.
"""

import argparse
import csv
import importlib
import io
import pathlib
from collections.abc import Iterable

from lra.board import catalogue, inputs
from lra.board.catalogue import REFERENCE
from lra.configs import protocols
from lra.core import files, paths
from lra.core import tasks as known_tasks

TASKS = ('listops', 'text', 'retrieval')
STATE = 'state_size'  # column of the sizes on TASKS[0]
COUNTED = paths.PACKAGED / 'parameters.csv'


def parameters(model: str, task: str) -> int:
  """Counts trainable parameters of `configs/<model>.py:<task>[,protocol=...]`.

  Only models of one and two blocks are traced: each further block adds as many
  parameters as the second.
  """
  config = _config_of(model, task)
  layers = config.encoder.num_layers
  one = _traced(config, 1)
  return one + (layers - 1) * (_traced(config, 2) - one if layers > 1 else 0)


def _config_of(model, argument):
  """Returns a copy of the config `configs/<model>.py:<argument>`."""
  return importlib.import_module(f'lra.configs.{model}').get_config(
      argument).copy_and_resolve_references()


def _traced(config, layers):
  """Returns the number of parameters of a config with this many blocks."""
  import jax  # takes a second, and reading the counts does not need it

  from lra.run import program, step
  from lra.run.experiment import resolve
  config.encoder.num_layers = layers
  made = program.make(resolve(config), jax.devices()[:1])
  batch = {name: jax.ShapeDtypeStruct(shape, dtype) for name, (shape, dtype)
           in made.objective.shapes(1).items()}
  shapes = jax.eval_shape(
      lambda batch: made.model.init(
          step.stream(0, step.INIT), made.objective.inputs(batch),
          train=False), batch)
  return sum(program.sizes(shapes['params']).values())


def table() -> tuple[dict[str, dict[str, int]], list[str]]:
  """Returns {model: {task: parameters}} on `TASKS`, and problems.

  Models that were counted before are read. A model whose file or config fails
  is left out and has a sentence in the problems.
  """
  known, problems = read(), []
  found = {}
  for entry in catalogue.read():
    try:
      found[entry.name] = known.get(entry.name) or count(entry.name)
    except Exception as error:  # an unfinished file may raise any error
      reason = ' '.join(str(error).split()) or type(error).__name__
      problems.append(f'{entry.name} cannot be built: {reason}')
  return found, problems


def count(model: str) -> dict[str, int]:
  """Counts the parameters of a model: task -> parameters."""
  return {task: parameters(model, task) for task in TASKS}


def state_size(model: str) -> int | None:
  """Returns the state size of a layer on TASKS[0], None if unknown."""
  from lra.run.experiment import resolve
  return resolve(_config_of(model, TASKS[0])).state_size


def state_sizes() -> dict[str, int]:
  """Reads model -> state size of the known ones."""
  return {row['model']: int(row[STATE])
          for row in inputs.counts(COUNTED, ('model', STATE), ())
          if row[STATE].isdecimal()}


def read(path: pathlib.Path = COUNTED) -> dict[str, dict[str, int]]:
  """Reads model -> task -> parameters; {} if nothing was counted before."""
  return {row['model']: {task: row[task] for task in TASKS}
          for row in inputs.counts(path, ('model',), TASKS)}


def write(folder: pathlib.Path, names: Iterable[str] | None = None) -> None:
  """Writes the parameter counts of models, and of each protocol's Transformer.

  All models are counted, or those with `names`.
  """
  names = [e.name for e in catalogue.read()] if names is None else names
  files.write_all({
      folder / COUNTED.name: _csv(
          ['model', *TASKS, STATE],
          ([name, *count(name).values(), state_size(name)] for name in names)),
      folder / inputs.BUDGETS.name: _csv(
          ['protocol', 'task', 'transformer'],
          ([*of, number] for of, number in count_budgets().items()))})


def count_budgets() -> dict[tuple[str, str], int]:
  """Returns {(protocol, task): parameters of the Transformer there}.

  The harder settings of MAD are left out.
  """
  return {(protocol, task): parameters(
      REFERENCE, f'{task},protocol={protocol}')
          for protocol, known in protocols.PROTOCOLS.items()
          for task in known if task in known_tasks.TASKS}


def _csv(header, rows):
  out = io.StringIO()
  writer = csv.writer(out, lineterminator='\n')
  writer.writerow(header)
  writer.writerows(rows)
  return out.getvalue().encode()


if __name__ == '__main__':
  argparse.ArgumentParser(
      prog='python -m lra.cli.parameters', description=(
          'Counts all models and writes lra/results/parameters.csv and '
          'budgets.csv.')).parse_args()
  write(paths.results())
  print(f'wrote {paths.results()}/{COUNTED.name} and {inputs.BUDGETS.name} '
        'beside it')
