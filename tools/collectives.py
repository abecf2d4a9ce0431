"""Counts the bytes that devices of a mesh send in a step, and estimates times.

`python -m tools collectives 8,64,256` writes `lra/results/collectives.md`. It
compiles training steps for these numbers of devices, which need not be present,
and reads from the programs how many bytes each device sends.

Times are computed, not measured. The time to send is that of a ring's bytes
over one link, without the wait for the first byte. The time to compute is that
of the program's operations at a chip's highest rate. A real step computes more
slowly, and sends while it computes. A device therefore keeps at least the share
of its speed in the last column. Over `data` and `fsdp` the batch grows with the
number of devices; over `sequence` each device has less to do.
"""

import dataclasses
import math
from collections.abc import Sequence

import jax

from lra.board.markdown import table
from lra.core import paths
from lra.core.errors import UserError
from lra.run import mesh, program
from lra.run.experiment import resolve
from tools import config_of, hlo
from tools.tables import write

# A TPU v5e chip: 197 TFLOP/s in bfloat16 and 1,600 Gbit/s over four links each
# way (cloud.google.com/tpu/docs/v5e). A 400 Gbit/s port of InfiniBand NDR
# beside a GPU is as fast as one of these links.
OPERATIONS_PER_S = 197e12
BYTES_PER_S = 1600e9 / 8 / 4

TASK = 'pathx'
CASES = {'simpletron': ('data', 'fsdp', 'sequence'), 'lightning': ('sequence',)}

# Bytes that one of n devices sends, divided by the bytes of its result.
_SENT = {
    'all-reduce': lambda n: 2 * (n - 1) / n,
    'all-gather': lambda n: (n - 1) / n,
    'reduce-scatter': lambda n: n - 1,
    'all-to-all': lambda n: (n - 1) / n,
    'collective-permute': lambda n: 1,
}


@dataclasses.dataclass(frozen=True)
class Step:
  """The costs of a training step on one of several devices.

  `shape` has the devices of each axis of the mesh; `collectives` is that of
  `hlo.collectives`; `operations` are those of the device, in floating point.
  """
  shape: dict[str, int]
  collectives: dict[tuple[str, int, int], int]
  operations: float

  @property
  def bytes_sent(self) -> float:
    """Bytes that a device sends in a step if collectives use rings."""
    return sum(times * size * _SENT[kind](n)
               for (kind, size, n), times in self.collectives.items())

  @property
  def seconds(self) -> tuple[float, float]:
    """Seconds to compute at the peak FLOP/s, and to send over one link."""
    return self.operations / OPERATIONS_PER_S, self.bytes_sent / BYTES_PER_S


def compiled(config, devices: int) -> Step:
  """Compiles the step of a config, with its mesh, for a number of devices.

  The config's microbatch is that of one device with whole sequences. The
  microbatch and the batch grow with the number of devices that split examples.
  """
  micro = _microbatch(config)
  one = _made(config, devices, micro)
  count = config.train.batch_size // micro
  # XLA counts the operations in a loop once, so count one microbatch and
  # multiply.
  operations = count * one.compile_train().cost_analysis()['flops']
  return Step(dict(one.mesh.shape), collective_bytes(config, devices),
              operations)


def collective_bytes(config, devices: int) -> dict[tuple[str, int, int], int]:
  """Returns `Step.collectives` of a config's step, as in `compiled`."""
  made = _made(config, devices, config.train.batch_size)
  return hlo.collectives(made.compile_train().as_text())


def _microbatch(config):
  return config.train.microbatch_size or config.train.cpu_microbatch_size


def _made(config, devices, batch):
  config = config.copy_and_resolve_references()
  shape = mesh.make(config.mesh, jax.devices()[:devices]).shape
  share = math.prod(shape[name] for name in mesh.BATCH_AXES)
  micro = share * _microbatch(config)
  config.train.batch_size = share * batch
  config.train.microbatch_size = config.train.eval_batch_size = micro
  return program.make(
      resolve(config), jax.devices()[:devices], dtype='float32')


def main(argv: Sequence[str]) -> None:
  if len(argv) != 1:
    raise UserError('collectives needs numbers of devices, such as 8,64,256.')
  print(write(paths.results() / 'collectives.md', lines(argv[0].split(','))))


def lines(counts: list[str]) -> list[str]:
  """Returns lines of Markdown: the `report` of `CASES`, on each axis."""
  text = ['# Bytes that devices send each other in a training step', '',
          *__doc__.split('\n\n', 1)[1].strip().splitlines()]
  for model, axes in CASES.items():
    config = config_of(model, TASK)
    for axis in axes:
      config.mesh.update({name: -1 if name == axis else 1
                          for name in mesh.AXES})
      text += ['', *report(config, counts)]
  return text


def report(config, counts: list[str]) -> list[str]:
  """Returns lines of Markdown: collectives of the smallest mesh, then sizes.

  The counts are numbers of devices, as text.
  """
  if not all(word.isdigit() and 1 < int(word) <= 4096 for word in counts):
    raise UserError('collectives takes numbers of devices, 2 to 4096, such '
                    'as 8,64,256.')
  numbers = sorted(map(int, counts))
  jax.config.update('jax_num_cpu_devices', numbers[-1])
  steps = [compiled(config, n) for n in numbers]
  name = f'{config.model.name} on {config.task}'
  axes = ', '.join(f'{n} {axis}' for axis, n in config.mesh.items() if n != 1)
  axes = axes.replace('-1 ', '') or 'one device'
  return [
      f'## {name} over {axes}', '',
      f'One of {numbers[0]} devices executes:', '',
      table(['what', 'bytes', 'devices', 'times a step'],
            [[kind, f'{size:,}', str(n), str(times)] for (kind, size, n), times
             in sorted(steps[0].collectives.items())]), '',
      f'Computed, at {BYTES_PER_S / 1e9:.0f} GB/s and '
      f'{OPERATIONS_PER_S / 1e12:.0f} TFLOP/s:', '',
      table(['devices', 'mesh', 'MB sent a step', 'ms to send', 'ms to compute',
             'speed kept at least'], map(_row, steps))]


def _row(step):
  computing, sending = step.seconds
  axes = ' x '.join(f'{n} {name}' for name, n in step.shape.items() if n > 1)
  return [str(math.prod(step.shape.values())), axes,
          f'{step.bytes_sent / 1e6:.2f}', f'{1e3 * sending:.3f}',
          f'{1e3 * computing:.3f}',
          f'{computing / (computing + sending):.0%}']
