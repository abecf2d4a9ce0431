"""Counts the kernels that a training step launches on a GPU.

`JAX_PLATFORMS=cpu python -m lra.costs --launches=h200` compiles the step of a
few models, the whole batch as one microbatch, and counts in the program. The
GPU need not be present. The launches and bytes of a small model's step
determine its time on a GPU, not its operations.
"""

import importlib
import json
import os

import jax

import kernels
from kernels.tools import aot, hlo
from lra import paths
from lra.errors import UserError
from lra.experiment.experiment import resolve
from lra.report.markdown import table
from lra.training import program

MODELS = ('linear_transformer', 'transformer', 'simpletron', 'lightning',
          'bigbird')
TASKS = ('listops', 'image')
# Matmuls are cuBLASLt's, as in `aot.OPTIONS`.
FLAGS = '--xla_gpu_enable_triton_gemm=false'
BEFORE = 'launches_before.json'


def measure(name: str, task: str, target: str) -> dict[str, float]:
  """Counts launches and bytes of a model's step, protocol `nystrom`, float32.

  Args:
    name, task: name and task of the config.
    target: a GPU in `kernels.tools.aot.TARGETS`.

  Returns:
    `launches`; `bytes` moved; `waits` of the host; `temporary` bytes.

  Raises:
    aot.Unavailable: the target's compiler is not installed.
  """
  device = aot.device(target)
  config = importlib.import_module(f'configs.{name}').get_config(
      f'{task},protocol=nystrom').copy_and_resolve_references()
  with kernels.target(aot.platform(target)), aot.lowering(target):
    made = program.make(resolve(config), [device])
    compiled = made.compile_train()
  text = compiled.as_text()
  moved, launches = hlo.count(text, packed=_packed(config, made))
  return {'launches': launches, 'bytes': moved, 'waits': hlo.waits(text),
          'temporary': compiled.memory_analysis().temp_size_in_bytes}


def _packed(config, made):
  """Returns the bytes of q, k and v side by side, in float32."""
  cls = config.encoder.pooling == 'cls'
  tokens = config.train.batch_size * (made.objective.seq_len + cls)
  return 4 * tokens * 3 * config.model.get('qkv_width', config.encoder.width)


def tables(target: str) -> list[str]:
  """Returns lines of Markdown: the steps of `MODELS`, before and now.

  Raises:
    UserError: the target's compiler is not available; the message has the
      reason.
  """
  flags = os.environ.get('XLA_FLAGS', '--xla_gpu_autotune_level=0')
  os.environ['XLA_FLAGS'] = f'{flags} {FLAGS}'
  try:
    aot.device(target)
  except aot.Unavailable as reason:
    raise UserError(
        f'--launches={target} is not possible: {reason}. Install the extra '
        'aot-cuda, and set JAX_PLATFORMS=cpu if there is no GPU.'
    ) from reason
  before = json.loads((paths.results() / BEFORE).read_text(encoding='utf-8'))
  rows = []
  for name in MODELS:
    for task in TASKS:
      now, then = measure(name, task, target), before[f'{name} {task}']
      rows.append([name, task, *(
          text for key, show in _COLUMNS.items()
          for text in (show(then[key]), show(now[key])))])
  heads = [f'{key}{when}' for key in _HEADS for when in (' before', '')]
  return [*_heading(target), table(['model', 'task', *heads], rows, heads)]


_HEADS = ('launches', 'GB moved', 'host waits', 'GB temporary')
_COLUMNS = {
    'launches': '{:,}'.format, 'bytes': lambda n: f'{n / 1e9:.1f}',
    'waits': str, 'temporary': lambda n: f'{n / 1e9:.2f}'}


def _heading(target):
  return [
      '# Launches of a training step', '',
      f'One training step compiled for {target}, JAX {jax.__version__}, '
      'protocol nystrom, float32, the whole batch as one microbatch. Launches '
      'are kernels. GB moved are read from and written to device memory. The '
      'host waits at each conditional. Nothing is timed.', '',
      '"Before" is counted on older code: the gradients of '
      'norms, embedding and GELU were left to JAX, the optimizer updated each '
      'parameter by itself, each dropout derived its own keys and kept its '
      'random words. That count left out what cuBLASLt writes for the gradient '
      'of GELU.', '',
      'Products are those of cuBLASLt, and of a Pallas kernel for the '
      'gradients of narrow layers. Written by '
      f'`python -m lra.costs --launches={target}`.', '']
