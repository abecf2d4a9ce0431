"""Compiles programs for an H200 on a machine without one.

  python -m tools h200 --ops lightning --widths 64,128

prints registers and spills of every kernel, as ptxas reports them, and fails if
one spills. It needs the wheels of the extra `aot-cuda`: the CUDA plugin of the
installed jax, and ptxas. Environment variables must be set before jax is used,
so the command restarts itself in a new process.
"""

import argparse
import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp

from lra import kernels
from tests.helpers.cuda import CARDS, missing
from tests.helpers.errors import FUNCTIONS, PACKED

ENVIRONMENT = {'JAX_PLATFORMS': 'cpu', 'CUDA_VISIBLE_DEVICES': '',
               'XLA_FLAGS': '--xla_gpu_autotune_level=0',
               'MOSAIC_GPU_DUMP_PTXAS': '1'}
SHAPE = (32, 4001, 4)  # B, L, H: a CLS token in front of 4,000
PASSES = ('forward', 'backward')
# (whether there is a mask, whether one array holds q, k and v)
FORMS = ((False, False), (True, False), (True, True))
# The report of ptxas on one kernel.
ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\w+?)(?:_mosaic_gpu_kernel)?'.*?"
    r'(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, '
    r'(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers',
    re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Kernel:
  """A kernel's report by ptxas; memory in bytes per thread."""
  name: str
  registers: int
  stack: int
  spill_stores: int
  spill_loads: int


def device():
  """Returns a description of an H200 to compile for.

  Call it before jax is used: without an NVIDIA driver, it sets the missing
  variables of `ENVIRONMENT`. Raises RuntimeError, with the reason, if the
  wheels are missing or do not work.
  """
  if not os.path.exists('/proc/driver/nvidia'):
    for name in ('CUDA_VISIBLE_DEVICES', 'XLA_FLAGS'):
      os.environ.setdefault(name, ENVIRONMENT[name])
  return CARDS['h200'].device()


def compiled(function, *arguments):
  """Compiles as `captured` does, but returns `Kernel`s in place of the text.

  The process must have the variables of `ENVIRONMENT`. The list has the Mosaic
  kernels that this process had not compiled before.
  """
  program, text, seconds = captured(function, *arguments)
  return program, _parse(text), seconds


def captured(function, *arguments):
  """Compiles for an H200 and captures the compilers' output.

  The function is traced with `lra.kernels.target('gpu')`; the arguments are
  trees of jax.ShapeDtypeStruct. Returns the jax.stages.Compiled, the text, and
  the seconds that compiling took.
  """
  sharding = jax.sharding.SingleDeviceSharding(device())
  arguments = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
      arguments)
  start = time.perf_counter()
  with kernels.target('gpu'), _Output() as output:
    program = jax.jit(function).lower(*arguments).compile()
  return program, output.text, time.perf_counter() - start


class _Output:
  """Captures everything that this process, with libraries, writes to stdout."""

  text = ''

  def __enter__(self):
    sys.stdout.flush()
    self._file = tempfile.TemporaryFile()
    self._stdout = os.dup(1)
    os.dup2(self._file.fileno(), 1)
    return self

  def __exit__(self, *_):
    os.dup2(self._stdout, 1)
    os.close(self._stdout)
    self._file.seek(0)
    self.text = self._file.read().decode(errors='replace')
    self._file.close()


def _parse(text):
  return [Kernel(entry['name'],
                 *(int(entry[key])
                   for key in ('registers', 'stack', 'stores', 'loads')))
          for entry in ENTRY.finditer(text)]


def program(op, which, width, masked, shape=SHAPE, packed=False,
            dtype=jnp.bfloat16, kernel='pallas_gpu'):
  """Returns (function, arguments) of an op; `which` is one of `PASSES`.

  The backward program includes the forward pass, as in training. Packed
  operands have a bias and, for lightning attention, SiLU, as in a layer.
  """
  b, length, h = shape
  x = jax.ShapeDtypeStruct((b, length, h, width), dtype)
  mask = jax.ShapeDtypeStruct((b, length), jnp.bool_) if masked else None
  attend, arrays, named = FUNCTIONS[op], (x, x, x), {}
  if packed:
    attend = PACKED[op]
    arrays = (jax.ShapeDtypeStruct((b, length, 3, h, width), dtype),)
    named['bias'] = jax.ShapeDtypeStruct((3, h, width), jnp.float32)
    if op == 'lightning':
      attend = functools.partial(attend, activation='silu')

  def forward(mask, arrays, named):
    return attend(*arrays, kernel=kernel, mask=mask, **named)

  def both(mask, do, *operands):
    out, pull = jax.vjp(functools.partial(forward, mask), *operands)
    return out, *pull(do)

  if which == 'forward':
    return forward, (mask, arrays, named)
  return both, (mask, x, arrays, named)


def _report(op, which, width, masked, packed):
  """Compiles one program and returns its row."""
  function, arguments = program(op, which, width, masked, packed=packed)
  executable, found, seconds = compiled(function, *arguments)
  b, length, h = SHAPE
  tensor = 2 * b * length * h * width
  memory = executable.memory_analysis()
  text = executable.as_text()
  moves = re.findall(r'= \w+\[[\d,]*\]\S* (copy|transpose)\(', text)
  return {'op': op, 'pass': which, 'width': width, 'masked': masked,
          'packed': packed,
          'calls': len(re.findall(r'custom_call_target="mosaic_gpu', text)),
          'kernels': [dataclasses.asdict(kernel) for kernel in found],
          'copies': len(moves),
          'temporaries': memory.temp_size_in_bytes / tensor,
          'seconds': round(seconds, 1)}


def reports(ops, widths):
  """Compiles all programs in a new process and returns their rows."""
  return rows_of('h200', ENVIRONMENT, '--rows', ops=ops,
                 widths=widths)


def rows_of(tool, environment, *flags, **lists):
  """Returns the rows that `python -m tools TOOL` prints, as dictionaries.

  `environment` adds variables to its process, and `lists` flags with values.
  Raises RuntimeError, with the end of its output, if the process failed.
  """
  flags = [*flags, *(f'--{name}={",".join(map(str, values))}'
                     for name, values in lists.items())]
  done = subprocess.run([sys.executable, '-m', 'tools', tool, *flags],
                        env={**os.environ, **environment}, capture_output=True,
                        text=True)
  if done.returncode:
    raise RuntimeError(done.stderr[-4000:])
  return [json.loads(line) for line in done.stdout.splitlines()]


def arguments(argv):
  """Returns (ops, widths, whether to print rows only) of the arguments."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--ops', default='linear,simpletron,lightning')
  parser.add_argument('--widths', default='64,128')
  parser.add_argument('--rows', action='store_true', help=argparse.SUPPRESS)
  args = parser.parse_args(argv)
  widths = [int(width) for width in args.widths.split(',')]
  return args.ops.split(','), widths, args.rows


def main(argv):
  ops, widths, rows_only = arguments(argv)
  if rows_only:
    for op in ops:
      for width in widths:
        for masked, packed in FORMS:
          for which in PASSES:
            row = _report(op, which, width, masked, packed)
            print(json.dumps(row), flush=True)
    return
  reason = missing()
  if reason:
    sys.exit(reason)
  rows = reports(ops, widths)
  print(f'JAX {jax.__version__}\n')
  print('| op | pass | Dh | mask | packed | new kernels: registers | spilled '
        'bytes | copies | seconds |')
  print('|' + '---|' * 9)
  for row in rows:
    found = row['kernels']
    registers = ', '.join(f'{k["name"]} {k["registers"]}' for k in found)
    forms = ('yes' if row[key] else 'no' for key in ('masked', 'packed'))
    print(f'| {row["op"]} | {row["pass"]} | {row["width"]} | '
          f'{" | ".join(forms)} | {registers} | {_spilled(row)} | '
          f'{row["copies"]} | {row["seconds"]} |')
  sys.exit(1 if any(map(_spilled, rows)) else 0)


def _spilled(row):
  return sum(k['spill_stores'] + k['spill_loads'] for k in row['kernels'])
