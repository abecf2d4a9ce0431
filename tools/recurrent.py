"""Counts the bytes that layers of recurrent mixers move on an accelerator.

`python -m tools --recurrent=v5e,v6e,h200` compiles each mixer, forward and
with its gradients, causal and bidirectional, and counts bytes and launches. The
accelerators need not be present.
"""

import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp

from lra import kernels, models
from lra.board.markdown import table
from tools import aot, hlo, layers

MODELS = ('s5', 'lru', 's4d', 'retnet', 'gla', 'hgrn2', 'mamba2', 'mlstm',
          'deltanet', 'gated_deltanet', 'kda', 'rwkv7')
DIRECTIONS = ('causal', 'bidirectional')
BATCH, LENGTH, WIDTH, HEADS = 32, 4096, 256, 4
# The state widths of the models' defaults, in numbers of a complex or real
# type, and the ranks of their projections of low rank at width 256.
S5_STATES, LRU_STATES, MAMBA_STATES = 32, 64, 64
GLA_RANK, RWKV_RANKS = 16, 128


def parts(name: str, runs: int) -> tuple[list, list]:
  """Returns the parts of a layer at width `WIDTH` with `HEADS` heads.

  A float32 number counts as two bfloat16 numbers, a complex one as four.

  Args:
    name: one of `MODELS`.
    runs: 1 for a causal mixer, 2 for a bidirectional one.

  Returns:
    Matmuls, and other parts (recurrences, convolutions), as pairs of numbers
    for one token: how many a part reads, and how many it writes. Elementwise
    operations belong to the part that reads their result.
  """
  d, h = WIDTH, HEADS
  if name in ('s5', 'lru'):
    states = 4 * (S5_STATES if name == 's5' else LRU_STATES)
    glu = (d, d if name == 's5' else 2 * d)
    return ([(d, states), (runs * states + d, d), glu],
            [(states, states)] * runs)
  if name == 's4d':
    return [(d, 2 * d)], [(d, d)]
  return _matrix_parts(name, runs, d, h)


def _matrix_parts(name, runs, d, h):
  """Returns `parts` of mixers whose state is a matrix per head."""
  if name == 'retnet':
    return [(d, 6 * d), ((runs + 1) * 2 * d, d)], [(4 * d, 2 * d)] * runs
  if name == 'gla':
    return ([(d, 3 * d + GLA_RANK), (GLA_RANK, d), ((runs + 1) * d, d)],
            [(3 * d, d)] * runs)
  if name == 'hgrn2':
    return [(d, 3 * d), (runs * d, d)], [(3 * d, d)] * runs
  if name == 'mamba2':
    mixed = 2 * d + 2 * MAMBA_STATES
    return ([(d, 2 * d + mixed + h), ((runs + 1) * 2 * d, d)],
            [(mixed, mixed), (mixed + 2 * h, 2 * d)] * runs)
  if name == 'mlstm':
    inner = 2 * d
    return ([(d, 2 * inner), (inner, inner), (2 * runs * inner + inner, d),
             *[(inner, 2 * inner), (3 * inner, 2 * h)] * runs],
            [(inner, inner), (3 * inner + 4 * h, inner)] * runs)
  if name == 'rwkv7':
    return ([*[(d, 3 * d + RWKV_RANKS), (RWKV_RANKS, 3 * d)] * runs,
             (2 * runs * d, d)], [(6 * d, d)] * runs)
  convolution = (3 * d, 3 * d)
  if name == 'deltanet':
    return ([(d, 3 * d + h), (runs * d, d)],
            [convolution, (3 * d + 2 * h, d)] * runs)
  if name == 'gated_deltanet':
    value = 3 * d // 2
    return ([(d, 3 * d + value + 2 * h), ((runs + 1) * value, d)],
            [convolution, (3 * d + 4 * h, value)] * runs)
  rank = d // h
  return ([(d, 3 * d + h + 2 * rank), (2 * rank, 3 * d), ((runs + 1) * d, d)],
          [convolution, (5 * d + 2 * h, d)] * runs)


def floor(name: str, runs: int, direction: str, *, tokens: int,
          parameters: int) -> int:
  """Returns the fewest bytes that the parts of a layer move.

  Each part reads its operands and writes its results once. In the backward
  pass, a matmul becomes two, and every other part reads its operands and the
  gradient of its result, and writes the gradients of its operands.

  Args:
    name, runs: as in `parts`.
    direction: one of `layers.PASSES`.
    tokens: B L.
    parameters: number of float32 parameters. Each pass reads them once; their
      gradients are written once.
  """
  matmuls, others = parts(name, runs)
  numbers = sum(map(sum, matmuls + others))
  times = 1
  if direction == 'both':
    numbers += sum(2 * (r + w) for r, w in matmuls)
    numbers += sum(2 * r + w for r, w in others)
    times = 3
  return 2 * tokens * numbers + 4 * times * parameters


def mixer(name: str, way: str):
  """Returns a mixer of the table; `way` is one of `DIRECTIONS`."""
  made = models.mixer(name)
  heads = {'num_heads': HEADS} if 'num_heads' in models.defaults(name) else {}
  return made(direction=way, dtype=jnp.bfloat16, **heads)


def measure(name: str, way: str, direction: str, target: str, *,
            batch: int = BATCH, length: int = LENGTH) -> dict:
  """Compiles a mixer in bfloat16 and counts what its program does.

  Args:
    name: one of `MODELS`.
    way: one of `DIRECTIONS`.
    direction: one of `layers.PASSES`.
    target: one of `tools.aot.TARGETS`.
    batch, length: B and L.

  Returns:
    'moved' and 'floor'; 'launches'; 'copies', pairs of a description and of
    the bytes that all its runs write. All bytes are in units of T, the bytes
    of [B, L, D].

  Raises:
    aot.Unavailable: the target's compiler is not installed.
  """
  made = mixer(name, way)
  x = jax.ShapeDtypeStruct((batch, length, WIDTH), jnp.bfloat16)
  mask = jax.ShapeDtypeStruct((batch, length), bool)
  with kernels.target(aot.platform(target)), aot.lowering(target):
    params = jax.eval_shape(functools.partial(made.init, train=False),
                            jax.random.key(0), x, mask)
    arguments = (params, x, mask) + (x,) * (direction == 'both')
    text = layers.compiled(
        layers.function(made, direction), arguments, aot.device(target),
        aot.platform(target)).as_text()
  tensor = 2 * batch * length * WIDTH
  moved, launches = hlo.count(text)
  least = floor(
      name, 1 + (way == 'bidirectional'), direction, tokens=batch * length,
      parameters=sum(math.prod(p.shape) for p in jax.tree.leaves(params)))
  return {'moved': moved / tensor, 'floor': least / tensor,
          'launches': launches, 'copies': [
              (what, times * size / tensor)
              for what, times, size in copies(text, tensor // 4)]}


def tables(targets: list[str]) -> list[str]:
  """Returns lines of Markdown: what each mixer moves, and its copies.

  Args:
    targets: names in `tools.aot.TARGETS`.
  """
  found, listed = aot.available(targets)
  rows = []
  for which in itertools.product(found, MODELS, DIRECTIONS, layers.PASSES):
    target, name, way, direction = which
    counts = measure(name, way, direction, target)
    copied = counts['copies']
    rows.append([
        *which, f'{counts["moved"]:.1f}', f'{counts["floor"]:.1f}',
        f'{counts["moved"] / counts["floor"]:.2f}', str(counts['launches']),
        str(len(copied)), f'{sum(size for _, size in copied):.1f}'])
    listed += [f'* {" ".join(which)}: `{what}`, {size:.2f} T'
               for what, size in copied]
  head = ['target', 'mixer', 'direction', 'pass', 'moved / T', 'floor / T',
          'moved / floor', 'launches', 'copies', 'copied / T']
  return [
      '# Bytes that recurrent mixers move', '',
      f'bfloat16, B {BATCH}, L {LENGTH:,}, D {WIDTH}, {HEADS} heads, JAX '
      f'{jax.__version__}. T is the number of bytes of one [B, L, D]. '
      '"Moved" is what the compiled program reads from and writes to device '
      'memory. "Floor" is the number of bytes if each part of the layer reads '
      'its operands and writes its results once. "Copied" is what copies of '
      'T / 4 or more write, over all turns of a loop. Written by '
      f'`python -m tools --recurrent={",".join(targets)}`.', '',
      table(head, rows), '', '## Copies', '', *listed]


def copies(text: str, least: int) -> list[tuple[str, int, int]]:
  """Returns (what it is, times it runs, bytes of its result) of each copy.

  A copy counts if all its runs together write `least` bytes or more: a loop
  over parts of a sequence then copies a whole operand.

  Args:
    text: the text of a compiled program.
    least: a number of bytes.
  """
  return [(_named(o), times, hlo.size(o.shape))
          for times, o in hlo.moves(text) if times * hlo.size(o.shape) >= least]


def _named(o):
  """Returns an operation and where in the mixer it comes from."""
  source = re.search(r'op_name="([^"]*)"', o.rest)
  places = source.group(1).split('/') if source else []
  place = '/'.join(p for p in places if not re.match(
      r'(jit|jvp|transpose|Mixer|while|body|closed_call|checkpoint)\b', p))
  shape = o.shape.split('{')[0]
  return f'{o.op} {shape} {place}'.strip()
