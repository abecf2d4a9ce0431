"""Reports registers and spills of Triton kernels, for cards not present.

  python -m tools triton_report --cards a100,h200 --widths 32,64,128

compiles every program, runs ptxas on XLA's PTX, prints a table, and fails if a
kernel spills or a program copies an operand. It needs the wheels of the extra
`aot-cuda`. XLA reads the folder for PTX only once, so the command restarts
itself in a new process for every card.
"""

import argparse
import dataclasses
import importlib.util
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp

from lra import kernels
from lra.kernels import dispatch
from tests.helpers.cuda import CARDS
from tools import h200

OPS = ('linear', 'simpletron', 'lightning')
# Kernels of layers, which have no form with packed q, k, v.
LAYERS = ('norm_project', 'layer_norm', 'embedding', 'dense')
SHAPE = (8, 4001, 4)  # B, L, H: a CLS token in front of 4,000
FLAGS = '--xla_gpu_autotune_level=0 --xla_dump_emitter_re=ptx'
_PRODUCT = re.compile(r'\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)[\w.:]*')


@dataclasses.dataclass(frozen=True)
class Kernel:
  """The compilation result of one kernel.

  Attributes:
    registers, spills: registers and bytes (stored and loaded) per thread.
    products: PTX names of the tensor-core instructions.
    copies: number of asynchronous copies to shared memory.
  """
  name: str
  registers: int
  spills: int
  products: tuple
  copies: int


def ptxas():
  """Returns the path of ptxas, from its wheel if installed; None if missing."""
  found = importlib.util.find_spec('nvidia.cu13')
  for folder in found.submodule_search_locations if found else ():
    path = pathlib.Path(folder) / 'bin' / 'ptxas'
    if path.exists():
      return str(path)
  return shutil.which('ptxas')


def read(ptx, verbose):
  """Returns the `Kernel`s of a PTX file and the output of `ptxas -v` for it."""
  bodies = {}
  for body in re.split(r'\.entry\s+', ptx)[1:]:
    bodies[re.match(r'\w+', body).group(0)] = body
  return [
      Kernel(entry['name'], int(entry['registers']),
             int(entry['stores']) + int(entry['loads']),
             tuple(sorted(set(_PRODUCT.findall(bodies[entry['name']])))),
             len(re.findall(r'\bcp\.async\.c[ag]\b', bodies[entry['name']])))
      for entry in h200.ENTRY.finditer(verbose)]


def programs(op, width, dtype, packed, masked):
  """Returns the program of a training step, and descriptions of its arguments.

  Packed attention is that of a model: it has the gradient of a bias and, if it
  is lightning attention, SiLU. `width` is Dh for attention and `norm_project`,
  which has E = D = H * Dh. Other layers have `width` inputs. A table has 257
  ids, and a dense layer three times as many outputs as inputs.
  """
  if op == 'norm_project':
    return _norm_project(SHAPE[2] * width, dtype)
  if op in LAYERS:
    return _layer(op, width, dtype)
  return h200.program(op, 'backward', width, masked, SHAPE, packed, dtype,
                      'pallas_triton')


def _norm_project(width, dtype):
  """Returns the program and arguments of `norm_project`; E and D are `width`.
  """

  def step(o, weight, bias, dy):
    def forward(o, weight, bias):
      return kernels.norm_project(o, weight=weight, bias=bias,
                                  kernel='pallas_triton')

    y, pull = jax.vjp(forward, o, weight, bias)
    return y, pull(dy)

  o = jax.ShapeDtypeStruct((*SHAPE[:2], width), dtype)
  weight = jax.ShapeDtypeStruct((width, width), jnp.float32)
  bias = jax.ShapeDtypeStruct((width,), jnp.float32)
  return step, (o, weight, bias, o)


def _layer(op, width, dtype):
  """Returns the program and arguments of a layer without a public function."""

  def tokens(width):
    return jax.ShapeDtypeStruct((*SHAPE[:2], width), dtype)

  x, row = tokens(width), jax.ShapeDtypeStruct((width,), jnp.float32)
  if op == 'layer_norm':
    def step(x, scale, bias, dy, beside):
      own = dispatch.triton_module(op, width, dtype, dtype)
      y, *saved = own.forward(x, scale, bias, 1e-6, dtype)
      return y, own.backward(x, *saved, scale, dy, beside)

    return step, (x, row, row, x, x)
  if op == 'embedding':
    ids = jax.ShapeDtypeStruct(SHAPE[:2], jnp.int32)
    return lambda ids, dy: dispatch.triton_module(op, 257, dtype).gradient(
        ids, dy, 257), (ids, x)
  weight = jax.ShapeDtypeStruct((width, 3 * width), dtype)
  return lambda *args: dispatch.triton_module(
      op, *weight.shape, dtype).gradients(*args), (x, weight, tokens(3 * width))


def compiled(card, function, arguments, folder):
  """Returns the program for a cuda.Card and its `Kernel`s.

  XLA writes its PTX to `folder`, the `--xla_dump_to` of this process.
  """
  place = jax.sharding.SingleDeviceSharding(card.device())
  arguments = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
      arguments)
  before = set(folder.glob('*.ptx'))
  with kernels.target('gpu'), card.lowering():
    program = jax.jit(function).lower(*arguments).compile()
  found = []
  for path in set(folder.glob('*.ptx')) - before:
    ptx = path.read_text()
    if '.entry' not in ptx:
      continue
    said = subprocess.run(
        [ptxas(), '-v', '--gpu-name', card.arch, str(path), '-o', '/dev/null'],
        capture_output=True, text=True, check=True)
    found += read(ptx, said.stderr + said.stdout)
  return program, found


def _rows(args, folder):
  """Prints one JSON line per program, in a process with --xla_dump_to set."""
  for op in args.ops.split(','):
    for width in map(int, args.widths.split(',')):
      for dtype in args.dtypes.split(','):
        for packed, masked in _forms(op):
          row = {'op': op, 'width': width, 'dtype': dtype, 'packed': packed}
          print(json.dumps(row | _row(args.card, folder, **row, masked=masked)),
                flush=True)


def _forms(op):
  """Returns pairs: whether q, k, v are packed, whether there is a mask."""
  return ((False, False), (True, True))[: 1 if op in LAYERS else 2]


def _row(card, folder, op, width, dtype, packed, masked):
  function, arguments = programs(op, width, dtype, packed, masked)
  card = CARDS[card]
  program, found = compiled(card, function, arguments, folder)
  moved = re.findall(r'= \w+\[([\d,]*)\]\S* (?:copy|transpose)\(',
                     program.as_text())
  operand = SHAPE[0] * SHAPE[1] * SHAPE[2] * width
  if op in LAYERS[1:]:
    operand //= SHAPE[2]
  sizes = [math.prod(map(int, filter(None, x.split(',')))) for x in moved]
  found = [dataclasses.asdict(kernel) for kernel in found
           if kernel.products or kernel.name.startswith('layer_norm')]
  if not found:
    raise RuntimeError('XLA wrote no PTX of these kernels')
  return {'masked': masked, 'kernels': found,
          'copies': sum(size >= operand for size in sizes)}


def reports(card, ops=OPS, widths=(64,), dtypes=('bfloat16', 'float32')):
  """Compiles the programs for a card in a new process and returns their rows.
  """
  with tempfile.TemporaryDirectory() as folder:
    flags = f'{FLAGS} --xla_dump_to={folder}'
    return h200.rows_of('triton_report',
                        {**h200.ENVIRONMENT, 'XLA_FLAGS': flags},
                        f'--card={card}', f'--dump={folder}', ops=ops,
                        widths=widths, dtypes=dtypes)


def main(argv):
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--cards', default='a100,l40s,h200,b200,rtx5090')
  parser.add_argument('--ops', default=','.join((*OPS, *LAYERS)))
  parser.add_argument('--widths', default='32,64,128')
  parser.add_argument('--dtypes', default='bfloat16,float32')
  parser.add_argument('--card', help=argparse.SUPPRESS)
  parser.add_argument('--dump', help=argparse.SUPPRESS)
  args = parser.parse_args(argv)
  if args.card:
    _rows(args, pathlib.Path(args.dump))
    return
  reason = h200.missing()
  if reason:
    sys.exit(reason)
  print('| card | op | Dh | dtype | packed, mask | kernels: registers | '
        'spilled bytes | copies |')
  print('|' + '---|' * 8)
  bad = False
  for card in args.cards.split(','):
    rows = reports(card, args.ops.split(','), args.widths.split(','),
                   args.dtypes.split(','))
    for row in rows:
      found = row['kernels']
      spilled = {k['name']: k['spills'] for k in found if k['spills']}
      bad |= bool(spilled) or row['copies'] > 0
      registers = ', '.join(f'{k["name"]} {k["registers"]}' for k in found)
      packed = 'yes' if row['packed'] else 'no'
      print(f'| {card} | {row["op"]} | {row["width"]} | {row["dtype"]} | '
            f'{packed} | {registers} | {spilled or 0} | {row["copies"]} |',
            flush=True)
  sys.exit(bad)
