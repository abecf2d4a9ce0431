"""Counts the bytes that a layer of linear attention moves on an accelerator.

A layer is the mixer of a block: projections, kernel, output projection.
`python -m tools layers v5e,v6e,h200` writes `lra/results/layers.md`, for
accelerators that need not be present.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout

from lra import kernels, models
from lra.board.markdown import table
from lra.core import paths
from lra.core.errors import UserError
from tests.helpers import aot
from tools import hlo
from tools.tables import write

MODELS = ('linear_transformer', 'simpletron', 'lightning')
HEADS = ((4, 64), (8, 64), (4, 128), (4, 32))
PASSES = ('forward', 'both')
BATCH, LENGTH = 32, 4096


def floor(name: str, direction: str, width: int, *, batch: int = BATCH,
          length: int = LENGTH) -> int:
  """Returns the fewest bytes that the parts of a layer move, in bfloat16.

  Every part, a matmul or the kernel, reads its operands from device memory and
  writes its results to it once. A compiler for TPUs that keeps an array in
  on-chip memory between two parts moves less. Below, reads + writes are in
  units of T, the bytes of one [B, L, width]:

    forward   x -> qkv 1 + 3, kernel 3 + 1; with an output projection 1 + 1
    backward  kernel q, k, v, do 4 + 3, dx 3 + 1, dW 1 + 3; with an output
              projection 1 + 1 and 1 + 1

  The gradient of lightning's norm between kernel and output projection reads
  the output once more, 1. Parameters are float32. They are read once in each
  pass, and their gradients are written once.
  """
  tensor = 2 * batch * length * width
  projected = name != 'simpletron'
  tensors = 8 + 2 * projected
  weights = (3 + projected) * 4 * width * width
  if direction == 'both':
    tensors += 15 + 4 * projected + (name == 'lightning')
    weights *= 3  # both passes read them, and their gradients are written
  return tensors * tensor + weights


def function(mixer, direction: str):
  """Returns the function that a layer computes in a direction.

  'forward': (params, x, mask) -> y. 'both': (params, x, mask, dy) -> (y,
  gradients of params, gradient of x).
  """
  def forward(params, x, mask):
    return mixer.apply(params, x, mask, train=True)

  def both(params, x, mask, dy):
    y, pull = jax.vjp(lambda *a: forward(*a, mask), params, x)
    return y, *pull(dy)

  return {'forward': forward, 'both': both}[direction]


def program(name: str, direction: str, heads: int, head_width: int,
            target: str, kernel: str = 'auto'):
  """Compiles the layer of a model for a target, in bfloat16, with a mask.

  With the direction 'both', it has the gradients of x and the parameters too.
  """
  width = heads * head_width
  mixer = models.mixer(name)(
      num_heads=heads, qkv_width=width, kernel=kernel, dtype=jnp.bfloat16)
  x = jax.ShapeDtypeStruct((BATCH, LENGTH, width), jnp.bfloat16)
  mask = jax.ShapeDtypeStruct((BATCH, LENGTH), bool)

  with kernels.target(aot.platform(target)), aot.lowering(target):
    params = jax.eval_shape(functools.partial(mixer.init, train=False),
                            jax.random.key(0), x, mask)
    arguments = (params, x, mask) + (x,) * (direction == 'both')
    return compiled(function(mixer, direction), arguments, aot.device(target),
                    aot.platform(target))


def row_major(x, device) -> Format:
  """Returns the row-major layout of an array on a device."""
  return Format(Layout(tuple(range(len(x.shape)))),
                jax.sharding.SingleDeviceSharding(device))


def compiled(run, arguments, device, platform: str):
  """Compiles a layer's `function` with row-major arguments and results.

  It makes all programs whose bytes are counted or which are timed.
  """
  arguments = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(
          x.shape, x.dtype, sharding=row_major(x, device)), arguments)
  results = jax.tree.map(lambda x: row_major(x, device),
                         jax.eval_shape(run, *arguments))
  return jax.jit(run, out_shardings=results).lower(*arguments).compile(
      compiler_options=aot.OPTIONS.get(platform, {}))


def measure(name: str, direction: str, heads: int, head_width: int,
            target: str, kernel: str = 'auto') -> dict:
  """Counts what a compiled layer moves and launches; arguments as in `program`.

  'tensors' are bytes moved in units of T, 'ratio' these bytes divided by
  `floor`, 'copies' operations that only move data of the size of an operand or
  more.
  """
  text = program(name, direction, heads, head_width, target, kernel).as_text()
  width = heads * head_width
  tensor = 2 * BATCH * LENGTH * width
  moved, launches = hlo.count(text, packed=3 * tensor)
  return {'ratio': moved / floor(name, direction, width), 'launches': launches,
          'tensors': moved / tensor, 'copies': hlo.copies(text, tensor)}


def main(argv: Sequence[str]) -> None:
  if len(argv) != 1:
    raise UserError('layers needs targets, such as v5e,v6e,h200.')
  print(write(paths.results() / 'layers.md', lines(argv[0].split(','))))


def lines(targets: list[str]) -> list[str]:
  """Returns lines of Markdown: each layer with its own kernel and in plain XLA.
  """
  found, reasons = aot.available(targets)
  rows = [_row(target, name, direction, *heads) for target in found
          for name in MODELS for heads in HEADS for direction in PASSES]
  head = ['target', 'layer', 'H x Dh', 'pass', 'moved / T', 'floor / T',
          'moved / floor', 'copies', 'launches', 'XLA: moved / T', 'copies']
  return [
      '# Bytes that layers move', '',
      f'bfloat16, B {BATCH}, L {LENGTH:,}, D = H Dh, with a mask. T is the '
      'number of bytes of one [B, L, D]. Matmuls for a GPU are cuBLASLt\'s. '
      '"Moved" is what the compiled program reads from and writes to device '
      'memory. "Floor" is the number of bytes if each part of the layer reads '
      'its operands and writes its results once. Compilers for TPUs may keep '
      'an array in on-chip memory between two parts, which is not counted: '
      'moved can then be below the floor. Written by '
      f'`python -m tools layers {",".join(targets)}`.', '',
      table(head, rows), *reasons]


def _row(target, name, direction, heads, head_width):
  ours, plain = (measure(name, direction, heads, head_width, target, kernel)
                 for kernel in ('auto', 'xla'))
  width = heads * head_width
  least = floor(name, direction, width) / (2 * BATCH * LENGTH * width)
  passes = {'forward': 'fwd', 'both': 'fwd+bwd'}
  return [target, name, f'{heads} x {head_width}', passes[direction],
          f'{ours["tensors"]:.2f}', f'{least:.2f}', f'{ours["ratio"]:.2f}',
          str(len(ours['copies'])), str(ours['launches']),
          f'{plain["tensors"]:.2f}', str(len(plain['copies']))]
