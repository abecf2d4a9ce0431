"""The scan on a TPU: one kernel that reads x and a once and writes h.

The grid walks over blocks of rows in the order of the scan and carries the
state in scratch memory. A block is computed tile by tile, the rows of a
register at a time: log2(rows) doublings of (a, x), as in Hillis and Steele 1986
(CACM 29), give the states of all rows of a tile from the state before it.
"""

import dataclasses
import functools

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lra.kernels import dispatch, tpu
from lra.kernels.scan import numbers, passes

MAX_LANES = 512
MAX_ROWS = 256


def supported(shape, dtype):
  del shape, dtype  # all widths and dtypes are supported


def scan(x, a, state, *, reverse, late, interpret):
  batch, length, width = x.shape
  wide = numbers.wide(x.dtype)
  parts = len(numbers.split(x))
  plan = _plan(length, width, x.dtype, a.ndim == 1, parts, reverse, late)
  state = jnp.zeros((batch, width), wide) if state is None else state
  a = a.astype(wide)[None, None] if a.ndim == 1 else a
  ins, outs = {}, {}
  for name, z, spec in (('x', x, plan.tile()),
                        ('a', a, plan.once() if plan.constant else plan.tile()),
                        ('state', state[:, None], plan.row())):
    ins |= {n: (spec, y) for n, y in numbers.named(name, z).items()}
  for i, y in enumerate(numbers.split(x)):
    outs[f'h{i}'] = plan.tile(), dispatch.like(y, y.shape, y.dtype)
    outs[f'last{i}'] = (
        plan.row(), dispatch.like(y, (batch, 1, width), jnp.float32))
  found = tpu.call(functools.partial(_kernel, plan), ins, outs,
                   grid=(batch, pl.cdiv(width, plan.lanes), plan.blocks),
                   semantics=('parallel', 'parallel', 'arbitrary'),
                   scratch=[(1, plan.lanes)] * parts, interpret=interpret,
                   flops=8 * x.size * parts * parts)
  h, last = (numbers.join([found[f'{name}{i}'] for i in range(parts)])
             for name in ('h', 'last'))
  return h, last[:, 0]


forward, backward = passes.of(scan)


@dataclasses.dataclass(frozen=True)
class _Plan:
  """Sizes of a call: blocks of `rows` tokens and `lanes` channels.

  `tile_rows` are computed at once. `parts` is 1 for real numbers, else 2.
  """
  length: int
  rows: int
  lanes: int
  tile_rows: int
  parts: int
  constant: bool
  reverse: bool
  late: bool

  @property
  def blocks(self):
    return -(-self.length // self.rows)

  def block(self, n):
    return self.blocks - 1 - n if self.reverse else n

  def tile(self):
    return pl.BlockSpec(
        (1, self.rows, self.lanes), lambda b, e, n: (b, self.block(n), e))

  def row(self):
    return pl.BlockSpec((1, 1, self.lanes), lambda b, e, n: (b, 0, e))

  def once(self):
    return pl.BlockSpec((1, 1, self.lanes), lambda b, e, n: (0, 0, e))


def _plan(length, width, dtype, constant, parts, reverse, late):
  # A register holds 8 rows of 32-bit numbers, or 16 rows of 16-bit numbers.
  tile_rows = 32 // jnp.dtype(dtype).itemsize if parts == 1 else 8
  rows = min(MAX_ROWS, -(-length // tile_rows) * tile_rows)
  return _Plan(length, rows, min(width, MAX_LANES), tile_rows, parts,
               constant, reverse, late)


def _kernel(plan, ins, outs, *carried):
  n = pl.program_id(2)
  parts = range(plan.parts)

  def refs(space, name):
    return [getattr(space, f'{name}{i}') for i in parts]

  @pl.when(n == 0)
  def _():
    for carry, first in zip(carried, refs(ins, 'state'), strict=True):
      carry[...] = first[0]

  row = lax.broadcasted_iota(jnp.int32, (plan.tile_rows, plan.lanes), 0)
  tiles = plan.rows // plan.tile_rows
  left = plan.length - plan.block(n) * plan.rows  # rows of the block that exist
  constant = None
  if plan.constant:
    constant = tuple(
        jnp.broadcast_to(ref[0], row.shape) for ref in refs(ins, 'a'))

  def step(i, state):
    at = (tiles - 1 - i if plan.reverse else i) * plan.tile_rows
    at = pl.multiple_of(at, plan.tile_rows)
    there = row < left - at

    def load(name):
      return tuple(ref[0, pl.ds(at, plan.tile_rows), :].astype(jnp.float32)
                   for ref in refs(ins, name))

    x = numbers.where(there, load('x'), 0.0)
    a = constant if plan.constant else load('a')
    a = numbers.where(there, a, 1.0)
    h, state = _tile(plan, row, a, x, state)
    for ref, part in zip(refs(outs, 'h'), h, strict=True):
      ref[0, pl.ds(at, plan.tile_rows), :] = part.astype(ref.dtype)
    return state

  state = lax.fori_loop(0, tiles, step, tuple(ref[...] for ref in carried))
  for carry, part in zip(carried, state, strict=True):
    carry[...] = part

  @pl.when(n == plan.blocks - 1)
  def _():
    for ref, part in zip(refs(outs, 'last'), state, strict=True):
      ref[0] = part


def _tile(plan, row, a, x, state):
  """Returns h of a tile and the state [1, lanes] behind it."""
  size, count = 1, plan.tile_rows
  place = count - 1 - row if plan.reverse else row  # in the order of the scan
  after, factor = numbers.times(a, x) if plan.late else x, a
  while size < count:
    old = functools.partial(_shifted, plan, size)
    inside = place >= size
    before = numbers.where(inside, numbers.each(old, after), 0.0)
    power = numbers.where(inside, numbers.each(old, factor), 1.0)
    after = numbers.plus(after, numbers.times(factor, before))
    factor = numbers.times(factor, power)
    size *= 2
  wide = tuple(jnp.broadcast_to(s, row.shape) for s in state)
  states = numbers.plus(after, numbers.times(factor, wide))
  end = 0 if plan.reverse else count - 1
  last = tuple(s[end:end + 1] for s in states)
  if not plan.late:
    return states, last
  old = numbers.each(functools.partial(_shifted, plan, 1), states)
  before = tuple(
    jnp.where(place == 0, first, y) for first, y in zip(wide, old, strict=True)
  )
  return numbers.plus(before, x), last


def _shifted(plan, size, y):
  """Shifts the rows by `size` in scan order; the first rows wrap around."""
  return pltpu.roll(y, plan.tile_rows - size if plan.reverse else size, 0)
