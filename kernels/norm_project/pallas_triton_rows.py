"""The Triton kernels of RMS norm and projection: blocks of rows of tokens."""

import dataclasses

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from lra.kernels.triton import Place, Shape, Tools, zeros


@dataclasses.dataclass(frozen=True)
class Plan:
  """Blocks of o [N, E], weight [E, D] and y [N, D].

  With `whole`, a whole row of dy W^T stays in registers.
  """
  o: Shape
  weight: Shape
  y: Shape
  eps: float
  tools: Tools
  whole: bool = False

  def at(self):
    first = pl.program_id(0) * 0  # traced, as `Place` needs it
    return tuple(Place(x, first, first) for x in (self.o, self.weight, self.y))


def outputs(ins, outs, *, plan):
  """Computes a block of y and r; inputs o, weight, bias; outputs y, r."""
  at_o, at_w, at_y = plan.at()
  # Neighbouring programs share the rows of o.
  n = lax.div(pl.program_id(0), jnp.int32(plan.y.column_blocks))
  column = lax.rem(pl.program_id(0), jnp.int32(plan.y.column_blocks))
  column = column * plan.y.columns, plan.y.columns
  inside = at_o.valid(None, n)

  def step(k, carry):
    y, squares = carry
    o = at_o.load(ins.o, n, inside, block=_block(plan.o, k))
    w = at_w.load(ins.weight, k, at_w.valid(None, k), block=column)
    o32 = o.astype(jnp.float32)
    return y + plan.tools.dot(o, w), squares + o32 * o32

  carry = zeros(plan.o.rows, plan.y.columns), zeros(plan.o.rows, plan.o.columns)
  y, squares = lax.fori_loop(0, plan.o.column_blocks, step, carry)
  r = lax.rsqrt(jnp.sum(squares, axis=1) / plan.o.width + plan.eps)
  bias = at_y.load_row(ins.bias, at_y.b, column)
  at_y.store(outs.y, n, None, y * r[:, None] + bias[None], block=column)
  if outs.r is not None:
    # Programs of other columns write equal values.
    rows, mask = _rows(outs.r, plan.o, n, inside)
    plt.store(rows, r, mask=mask)


def gradients(ins, outs, *, plan):
  """Computes do, r dy and sums of dy over a block of rows.

  Inputs dy, o, weight, r; outputs do, scaled, dbias.
  """
  at_o, at_w, at_y = plan.at()
  n = pl.program_id(0)
  inside = at_o.valid(None, n)
  rows, mask = _rows(ins.r, plan.o, n, inside)
  r = plt.load(rows) if mask is None else plt.load(rows, mask=mask, other=0.0)

  def scale(k, carry):
    block = _block(plan.y, k)
    dy = at_y.load(ins.dy, n, inside, block=block).astype(jnp.float32)
    at_y.store(outs.scaled, n, None, dy * r[:, None], block=block)
    at_y.store_row(outs.dbias, n, jnp.sum(dy, axis=0), block)
    return carry

  lax.fori_loop(0, plan.y.column_blocks, scale, 0)

  def products(blocks):
    def step(k, ts):
      dy = at_y.load(ins.dy, n, inside, block=_block(plan.y, k))
      return tuple(t + plan.tools.dot(dy, weight(c, k), turn_b=True)
                   for c, t in zip(blocks, ts, strict=True))

    ts = tuple(zeros(plan.o.rows, plan.o.columns) for _ in blocks)
    return lax.fori_loop(0, plan.y.column_blocks, step, ts)

  def weight(c, k):
    within = at_w.valid(None, c)
    return at_w.load(ins.weight, c, within, block=_block(plan.weight, k))

  def load(c):
    o = at_o.load(ins.o, n, inside, block=_block(plan.o, c))
    return o.astype(jnp.float32)

  def write(c, t, dot):
    do = t * r[:, None] - load(c) * (r * r * r * dot / plan.o.width)[:, None]
    at_o.store(outs.do, n, None, do, block=_block(plan.o, c))

  if plan.whole:
    blocks = tuple(range(plan.o.column_blocks))
    ts = products(blocks)
    dot = sum(jnp.sum(t * load(c), axis=1)
              for c, t in zip(blocks, ts, strict=True))
    for c, t in zip(blocks, ts, strict=True):
      write(c, t, dot)
    return

  def add(c, dot):
    (t,) = products((c,))
    return dot + jnp.sum(t * load(c), axis=1)

  dot = lax.fori_loop(0, plan.o.column_blocks, add, zeros(plan.o.rows))

  def again(c, carry):
    write(c, *products((c,)), dot)
    return carry

  lax.fori_loop(0, plan.o.column_blocks, again, 0)


def _block(shape, k):
  return k * shape.columns, shape.columns


def _rows(ref, shape, n, inside):
  return ref.at[pl.ds(n * shape.rows, shape.rows)], inside
