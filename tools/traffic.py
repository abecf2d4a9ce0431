"""Compares bytes that compiled programs move with the least possible."""

import jax.numpy as jnp

from tools import aot, hlo
from tools.errors import FUNCTIONS

BATCH, LENGTH, HEADS = 32, 4096, 4
WIDTHS = (64, 128)
# Tensors of [B, L, H, Dh] read and written: q, k, v, out; and q, k, v, gradient
# of out, and three gradients.
TENSORS = {'fwd': 4, 'bwd': 7, 'fwd+bwd': 11}


def floor(op, direction, shape, itemsize=2):
  """Returns the bytes that the operands and results of a pass take at least."""
  del op  # equal for all ops, since states could be recomputed
  tensor = shape[0] * shape[1] * shape[2] * shape[3] * itemsize
  return TENSORS[direction] * tensor


def table(targets):
  """Returns markdown lines, one for each target, op, pass and kernel."""
  lines = [f'bfloat16, B {BATCH}, L {LENGTH:,}, H {HEADS}, a mask, operands as '
           '[B, L, H Dh]. T = bytes of one such tensor.',
           '',
           '| target | op | pass | Dh | kernel | moved / T | floor / T '
           '| operands + results / T | temporaries / T | launches |',
           '|---|---|---|---|---|---|---|---|---|---|']
  found, reasons = aot.available(targets)
  for target in found:
    for op in FUNCTIONS:
      for direction in aot.PASSES:
        for width in WIDTHS:
          for name in (aot.own_kernel(target), 'xla'):
            lines.append(_line(target, op, direction, width, name))
  return lines + [''] + reasons


def _line(target, op, direction, width, name):
  shape = (BATCH, LENGTH, HEADS, width)
  short = {'forward': 'fwd', 'backward': 'bwd'}[direction]
  start = f'| {target} | {op} | {short} | {width} | {name} | '
  try:
    program = aot.compiled(op, name, direction, target, shape, jnp.bfloat16)
  except NotImplementedError as reason:
    return start + f'not run: {reason} |'
  moved, launched = hlo.count(program.as_text())
  memory = program.memory_analysis()
  tensor = BATCH * LENGTH * HEADS * width * 2
  ends = memory.argument_size_in_bytes + memory.output_size_in_bytes
  cells = [f'{moved / tensor:.2f}', f'{floor(op, short, shape) / tensor:.0f}',
           f'{ends / tensor:.2f}', f'{memory.temp_size_in_bytes / tensor:.2f}',
           str(launched)]
  return start + ' | '.join(cells) + ' |'
