"""The scan in Triton: rows in registers, channels on the lanes.

A program walks over the rows of some channels of one example. It loads a group
of rows before it computes them one after the other, so that their transfers
overlap. If there are too few programs for the device, L is cut into parts. A
first kernel finds what each part does to a state, s -> A s + T, and plain XLA
joins these. The kernel then starts from the states before the parts, and x and
a are read twice.
"""

import dataclasses

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from lra.kernels import triton
from lra.kernels.scan import numbers, passes
from lra.kernels.xla import states_before

ROWS = 16  # rows loaded at once
COLUMNS = 64  # channels of a program, two for each thread of a warp
PER_CORE = 8  # programs that run on a multiprocessor at once


def supported(shape, dtype):
  del shape, dtype  # all widths and dtypes are supported
  triton.check()


def scan(x, a, state, *, reverse, late, interpret):
  batch, length, width = x.shape
  wide = numbers.wide(x.dtype)
  if a.ndim == 1:
    a = a.astype(wide)
  columns = -(-width // COLUMNS)
  parts, per_part = triton.cut(length, batch * columns, ROWS, PER_CORE)
  plan = _Plan(length, width, parts, per_part, len(numbers.split(x)),
               a.ndim == 1, reverse, late)
  if state is None:
    state = jnp.zeros((batch, width), wide)
  before = state[:, None]
  if parts > 1:
    before = _before(plan, x, a, state, interpret)
  found = _call('scan', plan, x, a, before, interpret, rows=True)
  h, after = (numbers.join([found[f'{name}{i}'] for i in range(plan.numbers)])
              for name in ('h', 'after'))
  return h, after[:, 0 if reverse else -1]


forward, backward = passes.of(scan)


def _before(plan, x, a, state, interpret):
  found = _call('scan_parts', plan, x, a, None, interpret, rows=False)
  total, factor = (
      numbers.join([found[f'{name}{i}'] for i in range(plan.numbers)])
      for name in ('after', 'factor'))
  return states_before(factor, total, state, plan.reverse)


def _call(name, plan, x, a, before, interpret, rows):
  """Runs the kernel; with `rows` it writes h, else the factor of each part."""
  batch, _, width = x.shape
  ins = {'x': x, 'a': a, 'before': before}
  ins = {n: y for k, z in ins.items() for n, y in numbers.named(k, z).items()}
  outs = {}
  states = (batch, plan.parts, width)
  for i, y in enumerate(numbers.split(x)):
    outs[f'h{i}'] = (y.shape, y.dtype) if rows else None
    outs[f'after{i}'] = states, jnp.float32
    outs[f'factor{i}'] = None if rows else (states, jnp.float32)
  return triton.call(name, _kernel, ins, outs,
                     grid=(-(-width // COLUMNS), plan.parts, batch), warps=1,
                     stages=1, interpret=interpret, plan=plan, rows=rows)


@dataclasses.dataclass(frozen=True)
class _Plan:
  """Sizes of a call: L in `parts` of `per_part` groups of `ROWS` rows."""
  length: int
  width: int
  parts: int
  per_part: int
  numbers: int
  constant: bool
  reverse: bool
  late: bool


def _kernel(ins, outs, *, plan, rows):
  part, b = pl.program_id(1), pl.program_id(2)
  start = pl.program_id(0) * COLUMNS
  lanes = pl.ds(start, COLUMNS)
  there = start + jnp.arange(COLUMNS) < plan.width

  def refs(space, name):
    return [getattr(space, f'{name}{i}') for i in range(plan.numbers)]

  def load(name, *at, also=True, other=0.0):
    return tuple(
        plt.load(ref.at[(*at, lanes)], mask=there & also, other=fill).astype(
            jnp.float32)
        for ref, fill in zip(refs(ins, name), (other, 0.0), strict=False))

  def store(name, value, *at, also=True):
    for ref, y in zip(refs(outs, name), value, strict=True):
      plt.store(ref.at[(*at, lanes)], y.astype(ref.dtype), mask=there & also)

  zero = tuple(jnp.zeros(COLUMNS, jnp.float32) for _ in range(plan.numbers))
  one = (zero[0] + 1.0, *zero[1:])
  constant = load('a', other=1.0) if plan.constant else None
  state = load('before', b, part) if rows else zero

  def group(i, carry):
    state, factor = carry
    i = plan.per_part - 1 - i if plan.reverse else i
    first = (part * plan.per_part + i) * ROWS
    order = range(ROWS)[:: -1 if plan.reverse else 1]
    # All loads come before the first product.
    loaded = []
    for r in order:
      t = first + r
      x = load('x', b, t, also=t < plan.length)
      if plan.constant:
        a = numbers.where(t < plan.length, constant, 1.0)
      else:
        a = load('a', b, t, also=t < plan.length, other=1.0)
      loaded.append((t, x, a))
    for t, x, a in loaded:
      if plan.late:
        h = numbers.plus(state, x)
        state = numbers.times(a, h)
      else:
        h = state = numbers.plus(numbers.times(a, state), x)
      if rows:
        store('h', h, b, t, also=t < plan.length)
      else:
        factor = numbers.times(a, factor)
    return state, factor

  carry = state, () if rows else one
  state, factor = lax.fori_loop(0, plan.per_part, group, carry)
  store('after', state, b, part)
  if not rows:
    store('factor', factor, b, part)
