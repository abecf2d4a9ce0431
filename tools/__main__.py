"""Measures and compiles: `python -m tools NAME ...`, for developers.

  step --config=... seconds of a compiled training step
  torch_cpu         seconds of training steps on a CPU, beside PyTorch
  tables memory     lra/results/memory.md, of all mixers; or tables speed
  layers TARGETS    bytes that layers move, compiled for v5e,v6e,h200
  launches TARGETS  kernels and bytes of training steps, compiled for h200
  collectives N,N   bytes that devices of a mesh send each other
  studies NAME      measurements for the page of studies
  errors            errors of the kernels against float64
  onchip FILE       errors and times on this machine's accelerator
  recorded FILE     tables of such a record
  benchmark         times of the kernels
  h200, triton_report   registers and spills of GPU kernels

`python -m tools NAME --help` describes one.
"""

import importlib
import sys

from lra.cli import command
from lra.core import environment, machine, streams
from lra.core.errors import UserError

NAMES = ('step', 'torch_cpu', 'tables', 'layers', 'launches', 'collectives',
         'studies', 'errors', 'onchip', 'recorded', 'benchmark', 'h200',
         'triton_report')


def main() -> int:
  environment.check_limits()  # as in run_lra.py
  name, *rest = sys.argv[1:] or ['--help']
  if name in ('-h', '--help'):
    print(__doc__)
  elif name in NAMES:
    machine.skip_tpu()  # before JAX is imported
    sys.argv[0] = f'python -m tools {name}'
    importlib.import_module(f'tools.{name}').main(rest)
  else:
    raise UserError(f'{name!r} is no tool: choose one of {", ".join(NAMES)}.')
  return 0


if __name__ == '__main__':
  environment.keep_freed_memory()  # as in run_lra.py
  streams.keep()
  command.run(main)
