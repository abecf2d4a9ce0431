"""PTX of the Mosaic kernels in a program, and results of running it."""

import os

from kernels.tools import h200
from kernels.tools.ptx import parse, run

# (B, L, H): a ragged length that is longer than the ring buffer; few heads, so
# that L is cut into parts.
SHAPES = ((32, 449, 4), (1, 1088, 2))
ENVIRONMENT = {**h200.ENVIRONMENT, 'MOSAIC_GPU_DUMP_PTX': '1'}


def kernels(function, *arguments):
  """Compiles for an H200 (see `h200.captured`); returns new `parse.Kernel`s.

  Raises:
    RuntimeError: MOSAIC_GPU_DUMP_PTX is not set.
  """
  if not os.environ.get('MOSAIC_GPU_DUMP_PTX'):
    raise RuntimeError('MOSAIC_GPU_DUMP_PTX=1 must be set to see any PTX')
  _, text, _ = h200.captured(function, *arguments)
  return parse.kernels(text)


def rows(op, width):
  """Yields the results of running each kernel of an op, as dictionaries."""
  for shape in SHAPES:
    for masked, packed in h200.FORMS:
      for which in h200.PASSES:
        function, arguments = h200.program(op, which, width, masked, shape,
                                           packed)
        for kernel in kernels(function, *arguments):
          report = run.run(kernel)
          yield {'op': op, 'pass': which, 'width': width, 'masked': masked,
                 'packed': packed, 'length': shape[1], 'kernel': kernel.name,
                 'warpgroups': kernel.warpgroups, 'stores': report.stores,
                 'shared_bytes': report.shared_bytes,
                 'races': [describe(kernel, race) for race in report.races]}


def reports(ops, widths):
  """Returns `rows`, computed in a new process; see `h200.rows_of`."""
  return h200.rows_of('kernels.tools.ptx', ENVIRONMENT, '--rows', ops=ops,
                      widths=widths)


def describe(kernel, race):
  """Describes a race: the two warps, the address, the two instructions."""
  second, first = (kernel.code[i] for i in (race.second, race.first))
  return (f'warp {race.warps[0]} {race.what} by '
          f'{_agent(kernel, race.warps[1])}, byte {race.address}: line '
          f'{second.line} `{second.text}`, line {first.line} `{first.text}`')


def _agent(kernel, number):
  return f'warp {number}' if 32 * number < kernel.threads else 'TMA'
