"""Counts the kernels that a training step launches on a GPU.

`JAX_PLATFORMS=cpu python -m tools launches h200` writes
`lra/results/launches.md`. It compiles the step of a few models, with the whole
batch as one microbatch, and counts the launches in the program. The GPU need
not be present.
"""

import os
from collections.abc import Sequence

import jax

from lra import kernels
from lra.board.markdown import table
from lra.core import paths
from lra.core.errors import UserError
from lra.run import program
from lra.run.experiment import resolve
from tests.helpers import aot
from tools import config_of, hlo
from tools.tables import write

MODELS = ('linear_transformer', 'transformer', 'simpletron', 'lightning',
          'bigbird')
TASKS = ('listops', 'image')
# Matmuls are cuBLASLt's, as in `aot.OPTIONS`.
FLAGS = '--xla_gpu_enable_triton_gemm=false'


def measure(name: str, task: str, target: str) -> dict[str, float]:
  """Counts launches and bytes of a model's step, protocol `nystrom`, float32.

  Returns `launches`; `bytes` moved; `waits` of the host; `temporary` bytes.
  """
  device = aot.device(target)
  config = config_of(name, f'{task},protocol=nystrom')
  with kernels.target(aot.platform(target)), aot.lowering(target):
    made = program.make(resolve(config), [device])
    compiled = made.compile_train()
  text = compiled.as_text()
  tokens = config.train.batch_size * (
      made.objective.seq_len + (config.encoder.pooling == 'cls'))
  # Bytes of q, k and v side by side, in float32.
  packed = 12 * tokens * config.model.get('qkv_width', config.encoder.width)
  moved, launches = hlo.count(text, packed=packed)
  return {'launches': launches, 'bytes': moved, 'waits': hlo.waits(text),
          'temporary': compiled.memory_analysis().temp_size_in_bytes}


def main(argv: Sequence[str]) -> None:
  if len(argv) != 1:
    raise UserError('launches needs one GPU: python -m tools launches h200.')
  print(write(paths.results() / 'launches.md', lines(argv[0])))


def lines(target: str) -> list[str]:
  """Returns lines of Markdown: the steps of `MODELS`."""
  flags = os.environ.get('XLA_FLAGS', '--xla_gpu_autotune_level=0')
  os.environ['XLA_FLAGS'] = f'{flags} {FLAGS}'
  try:
    aot.device(target)
  except aot.Unavailable as reason:
    raise UserError(
        f'launches {target} is not possible: {reason}. Install the extra '
        'aot-cuda, and set JAX_PLATFORMS=cpu if there is no GPU.'
    ) from reason
  rows = []
  for name in MODELS:
    for task in TASKS:
      found = measure(name, task, target)
      rows.append([name, task, f'{found["launches"]:,}',
                   f'{found["bytes"] / 1e9:.1f}', str(found['waits']),
                   f'{found["temporary"] / 1e9:.2f}'])
  heads = ['launches', 'GB moved', 'host waits', 'GB temporary']
  return [
      '# Launches of a training step', '',
      f'One training step compiled for {target}, JAX {jax.__version__}, '
      'protocol nystrom, float32, with the whole batch as one microbatch. '
      'Launches are kernels. GB moved are read from and written to device '
      'memory. The host waits at each conditional. Nothing is timed.', '',
      'Matmuls are those of cuBLASLt; a Pallas kernel computes the gradients '
      'of narrow layers. Written by '
      f'`python -m tools launches {target}`.', '',
      table(['model', 'task', *heads], rows, heads)]
