"""Chooses batch sizes that fit into the memory of the hardware.

They change memory and speed, not the result. An accelerator raises an error if
its memory is full. On a CPU, the system kills the process without a message. So
there the sizes are compared with the machine's memory beforehand.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax

from lra.core import machine
from lra.core.errors import UserError
from lra.core.terminal import say
from lra.run import check
from lra.run.experiment import Experiment

# Examples of an evaluation batch on an accelerator, if memory allows.
EVAL_BATCH = 256
# Share of an accelerator's memory that one compiled program may need.
SHARE = 0.8


@dataclasses.dataclass(frozen=True)
class Sizes:
  microbatch: int
  eval_batch: int

  def __str__(self) -> str:
    return (f'microbatches of {self.microbatch}, evaluation batches of '
            f'{self.eval_batch}')


def wanted(config, mesh, before: dict | None = None) -> Sizes:
  """Returns the sizes to try first; a run keeps those of its env.json."""
  train, share, kept = config.train, devices(mesh), before or {}
  if kept.get('device') != machine.device_name():
    kept = {}
  usual = (train.cpu_microbatch_size, train.cpu_eval_batch_size) if is_cpu(
      mesh) else (train.batch_size, EVAL_BATCH)
  micro, evaluated = train.microbatch_size, train.eval_batch_size
  if not micro:
    micro = _divisor(train.batch_size, kept.get('microbatch_size') or usual[0],
                     share, unit(config, mesh))
  if not evaluated:
    evaluated = kept.get('eval_batch_size') or usual[1]
    evaluated = max(evaluated // share, 1) * share
  return Sizes(micro, evaluated)


def devices(mesh) -> int:
  """Returns how many devices share the examples of a microbatch."""
  return mesh.shape['data'] * mesh.shape['fsdp']


def unit(config, mesh) -> int:
  """Returns the number of examples that microbatches are multiples of."""
  return math.lcm(devices(mesh), check.sharing(config))


def _divisor(batch, most, share, unit):
  """Returns the largest divisor of a batch that is a multiple of `unit`."""
  if batch % share:
    raise UserError(
        f'config.train.batch_size={batch} cannot be split over {share} '
        f'devices: choose a multiple of {share}, or a smaller config.mesh.')
  if batch % unit:
    raise UserError(
        f'config.train.batch_size={batch} is no multiple of {unit}, the '
        f'examples that share statistics on {share} devices: choose another '
        'config.encoder.norm_examples, or a smaller config.mesh.')
  each, most = batch // unit, max(most // unit, 1)
  return unit * max(n for n in range(1, each + 1)
                    if each % n == 0 and n <= most)


def is_cpu(mesh) -> bool:
  return mesh.devices.flat[0].platform == 'cpu'


def budget(mesh) -> float:
  """Returns the bytes that one program may need on a device; inf if unknown."""
  if is_cpu(mesh):
    return math.inf  # `check_compiled` knows the memory of the machine
  device = next(d for d in mesh.devices.flat
                if d.process_index == jax.process_index())
  stats = device.memory_stats() or {}
  return SHARE * stats.get('bytes_limit', math.inf)


def needs(compiled) -> int:
  m = compiled.memory_analysis()
  return (m.argument_size_in_bytes + m.output_size_in_bytes
          - m.alias_size_in_bytes + m.temp_size_in_bytes)


def fitting(compile_at: Callable[[int], Any], size: int, share: int,
            limit: float, what: str) -> tuple[int, Any]:
  """Returns the largest size whose program fits into `limit`, and the program.

  `size` is halved as often as necessary, while it is a multiple of `share`. The
  smallest size is returned even if it does not fit: the device decides.
  """
  while True:
    half = size // 2
    smaller = size % 2 == 0 and half % share == 0 and half > 0
    try:
      compiled = compile_at(size)
    except jax.errors.JaxRuntimeError as error:
      if not smaller or not machine.out_of_memory(error):
        raise
    else:
      if needs(compiled) <= limit or not smaller:
        return size, compiled
    say(f'{what}: {size} examples at a time need too much memory, trying '
        f'{half}.')
    size = half


def check_batches(experiment: Experiment, mesh, chosen: Sizes) -> None:
  """Raises UserError if the widest layer of a batch does not fit into memory.
  """
  config, tokens = experiment.config, experiment.objective.seq_len
  tokens *= 2 if experiment.task.dual else 1
  layer = 2 * max(config.encoder.width, config.encoder.mlp_width)  # bytes
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
  """Raises UserError if a state does not fit into memory with its gradients."""
  least = sum(x.size * x.dtype.itemsize
              for x in jax.tree.leaves((state, state.params)))
  if _too_much(least, mesh):
    raise UserError(
        f'Parameters, gradients and optimizer need {_gib(least)}, and this '
        f'machine has {_gib(machine.memory())}: choose a smaller '
        f'config.encoder.width={width} or fewer layers; the largest parameter '
        f'is {max(entries, key=entries.get)}.')


def check_compiled(compiled, mesh) -> None:
  """Raises RESOURCE_EXHAUSTED if a function needs more than a CPU's memory."""
  needed = needs(compiled)
  if _too_much(needed, mesh):
    raise jax.errors.JaxRuntimeError(
        f'RESOURCE_EXHAUSTED: {_gib(needed)} are needed, and this machine has '
        f'{_gib(machine.memory())}.')


def _too_much(count, mesh):
  return is_cpu(mesh) and count > machine.memory()


def _gib(count):
  return f'{count / 2**30:,.1f} GiB'
