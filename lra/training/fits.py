"""Refuses runs that cannot fit into the memory of a CPU.

An accelerator raises an error if its memory is full. On a CPU, the system ends
the process without a message. So sizes are compared with the memory beforehand.
"""

import jax

from lra import tasks
from lra.errors import UserError
from lra.system import machine
from lra.training import sizes


def check_batches(config, mesh, chosen: sizes.Sizes) -> None:
  """Refuses batches if their widest layer alone does not fit into memory.

  Args:
    config: a checked config.
    mesh: the devices.
    chosen: the batch sizes of the run.

  Raises:
    UserError: a batch size is too large; the message names the field.
  """
  encoder, task = config.encoder, tasks.get(config.task)
  tokens = (config.seq_len or task.seq_len) * (2 if task.dual else 1)
  layer = 2 * max(encoder.width, encoder.mlp_width)  # bytes, at 16 bits
  for name, count, each in (
      ('batch_size', config.train.batch_size, 2),
      ('microbatch_size', chosen.microbatch, layer),
      ('eval_batch_size', chosen.eval_batch, layer)):
    least = count * tokens * each
    if _too_much(least, mesh):
      raise UserError(
          f'config.train.{name}={count} is not possible: it needs at least '
          f'{_gib(least)}, and this machine has {_gib(machine.memory())}: '
          'choose a smaller one.')


def check_state(state, entries: dict[str, int], width: int, mesh) -> None:
  """Refuses a state that does not fit into memory with its gradients.

  Args:
    state: shapes and dtypes of a `step.TrainState`.
    entries: parameter name -> number of entries.
    width: `config.encoder.width`.
    mesh: the devices.

  Raises:
    UserError: the state is too large; the message names the width and the
      largest parameter.
  """
  least = sum(x.size * x.dtype.itemsize
              for x in jax.tree.leaves((state, state.params)))
  if _too_much(least, mesh):
    raise UserError(
        f'Parameters, gradients and optimizer need {_gib(least)}, and this '
        f'machine has {_gib(machine.memory())}: choose a smaller '
        f'config.encoder.width={width} or fewer layers; the largest parameter '
        f'is {max(entries, key=entries.get)}.')


def check_compiled(compiled, mesh) -> None:
  """Raises an accelerator's error if a function needs too much memory.

  Raises:
    jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED.
  """
  needed = sizes.needs(compiled)
  if _too_much(needed, mesh):
    raise jax.errors.JaxRuntimeError(
        f'RESOURCE_EXHAUSTED: {_gib(needed)} are needed, and this machine has '
        f'{_gib(machine.memory())}.')


def _too_much(count, mesh):
  return sizes.is_cpu(mesh) and count > machine.memory()


def _gib(count):
  return f'{count / 2**30:,.1f} GiB'
