"""What cannot fit into a processor's memory is refused before it is touched.

An accelerator says by itself that its memory is full. A processor's system
ends the process without a word, so here all is compared with what there is.
"""

import jax

from lra import machine, tasks
from lra.errors import UserError
from lra.training import sizes


def check_batches(config, mesh, chosen: sizes.Sizes) -> None:
  """Refuses batches of which the widest layer alone cannot be held.

  Args:
    config: a checked config.
    mesh: the devices.
    chosen: the batch sizes of the run.

  Raises:
    UserError: names the field.
  """
  encoder, task = config.encoder, tasks.get(config.task)
  tokens = (config.seq_len or task.seq_len) * (2 if task.dual else 1)
  layer = 2 * max(encoder.width, encoder.mlp_width)  # bytes, of 16 bits each
  for name, count, each in (
      ('batch_size', config.train.batch_size, 2),
      ('microbatch_size', chosen.microbatch, layer),
      ('eval_batch_size', chosen.eval_batch, layer)):
    least = count * tokens * each
    if _too_much(least, mesh):
      raise UserError(
          f'config.train.{name}={count} is not possible: it takes '
          f'{_gib(least)} at least, and there are {_gib(machine.memory())}: '
          'choose a smaller one.')


def check_state(state, entries: dict[str, int], width: int, mesh) -> None:
  """Refuses a state that cannot be held beside its gradients.

  Args:
    state: shapes and dtypes of a `step.TrainState`.
    entries: parameter name -> number of entries.
    width: `config.encoder.width`.
    mesh: the devices.

  Raises:
    UserError: names the width, and the largest parameter.
  """
  least = sum(x.size * x.dtype.itemsize
              for x in jax.tree.leaves((state, state.params)))
  if _too_much(least, mesh):
    raise UserError(
        f'Parameters, gradients and optimizer take {_gib(least)}, and there '
        f'are {_gib(machine.memory())}: choose a smaller '
        f'config.encoder.width={width} or fewer layers; '
        f'{max(entries, key=entries.get)} has the most of them.')


def check_compiled(compiled, mesh) -> None:
  """Raises as an accelerator does if a compiled function needs too much.

  Raises:
    jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED.
  """
  needed = sizes.needs(compiled)
  if _too_much(needed, mesh):
    raise jax.errors.JaxRuntimeError(
        f'RESOURCE_EXHAUSTED: {_gib(needed)} are needed, and there are '
        f'{_gib(machine.memory())}.')


def _too_much(count, mesh):
  return sizes.is_cpu(mesh) and count > machine.memory()


def _gib(count):
  return f'{count / 2**30:,.1f} GiB'
