"""Counts the kernels that a training step launches on a GPU.

`JAX_PLATFORMS=cpu python -m tools launches h200` writes
`lra/results/launches.md`. It compiles the step of twelve models, with the whole
batch as one microbatch, and counts the launches in the program. The GPU need
not be present. `--check` compiles four of the steps instead, and fails if one
has 5% more launches than the table.
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

MODELS = ('linear_transformer', 'simpletron', 'lightning', 'transformer', 's4d',
          's5', 'gla', 'retnet', 'mamba2', 'deltanet', 'gated_deltanet',
          'rwkv7')
CHECKED = ('linear_transformer', 's5', 'gla', 'gated_deltanet')
MORE = 1.05  # launches may rise to this multiple of the table's
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
  if len(argv) not in (1, 2) or argv[1:] not in ([], ['--check']):
    raise UserError(
        'launches needs one GPU: python -m tools launches h200 [--check].')
  path = paths.results() / 'launches.md'
  prepare(argv[0])
  if argv[1:]:
    check(argv[0], path.read_text().splitlines())
  else:
    print(write(path, lines(argv[0])))


def prepare(target: str) -> None:
  """Sets XLA's flags; raises UserError if `target` has no compiler here."""
  flags = os.environ.get('XLA_FLAGS', '--xla_gpu_autotune_level=0')
  os.environ['XLA_FLAGS'] = f'{flags} {FLAGS}'
  try:
    aot.device(target)
  except aot.Unavailable as reason:
    raise UserError(
        f'launches {target} is not possible: {reason}. Install the extra '
        'aot-cuda, and set JAX_PLATFORMS=cpu if there is no GPU.'
    ) from reason


def check(target: str, page: Sequence[str]) -> None:
  """Raises UserError if a step of `CHECKED` has more launches than `page`.

  XLA's version decides how many there are, so another JAX is not checked.
  """
  if f'JAX {jax.__version__},' not in page[2]:
    print(f'The table has another JAX than {jax.__version__}: not checked.')
    return
  for name in CHECKED:
    row = next(x for x in page if x.startswith(f'| {name} | listops |'))
    before = int(row.split('|')[3].replace(',', ''))
    now = measure(name, 'listops', target)['launches']
    if now > MORE * before:
      raise UserError(
          f'A ListOps step of {name} has {now} launches, {before} before. Find '
          f'the cause, or make the table again: python -m tools launches '
          f'{target}.')
    print(f'{name}: {now} launches, {before} in the table.')


def lines(target: str) -> list[str]:
  """Returns lines of Markdown: the steps of `MODELS`."""
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
