"""RMS norm and projection in Triton: one kernel forward, one backward.

Forward reads o and writes y. Backward reads dy and o, writes do and r dy, and
leaves dW = o^T (r dy) to a plain matmul. With t = dy W^T in the registers of a
program,

  do_i = r_i t_i - r_i^3 (t_i . o_i) / E o_i

needs a whole row of t. If a row is too wide, a program computes each of its
blocks of columns twice, for t_i . o_i and for the result.
"""

import dataclasses

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from lra.kernels import triton
from lra.kernels.triton import Place, Shape, Tools, padded, zeros


def supported(shape, dtype):
  del shape, dtype  # all widths and both dtypes are supported
  triton.check()


def forward(inputs, options, save):
  o_NxE, weight_ExD, b_D = inputs
  w_ExD = weight_ExD.astype(o_NxE.dtype)
  size = _forward_size(w_ExD.shape[1], o_NxE.dtype)
  plan = _plan(o_NxE, w_ExD, size, options)
  outs = _run('norm_project', _outputs, plan, size,
              plan.o.blocks * plan.y.column_blocks,
              {'o': o_NxE, 'weight': w_ExD, 'bias': b_D[None]},
              {'y': ((o_NxE.shape[0], w_ExD.shape[1]), o_NxE.dtype),
               'r': ((o_NxE.shape[0],), jnp.float32) if save else None},
              options)
  return outs['y'], (w_ExD, outs['r']) if save else None


def backward(inputs, saved, dy_NxD, options):
  o_NxE, (w_ExD, r_N) = inputs.o, saved
  size = _backward_size(o_NxE.shape[1], o_NxE.dtype)
  whole = o_NxE.shape[1] <= size.whole
  plan = _plan(o_NxE, w_ExD, size, options, whole)
  outs = _run(
      'norm_project_gradients', _gradients, plan, size, plan.o.blocks,
      {'dy': dy_NxD, 'o': o_NxE, 'weight': w_ExD, 'r': r_N},
      {'do': (o_NxE.shape, o_NxE.dtype), 'scaled': (dy_NxD.shape, dy_NxD.dtype),
       'dbias': ((plan.o.blocks, w_ExD.shape[1]), jnp.float32)},
      options)
  dw_ExD = jnp.dot(o_NxE.T, outs['scaled'], preferred_element_type=jnp.float32)
  return type(inputs)(outs['do'], dw_ExD, outs['dbias'].sum(0))


@dataclasses.dataclass(frozen=True)
class _Size:
  """Sizes of a program: rows; columns of o, W and y that a step multiplies.

  Up to `whole` columns of o, a backward program has whole rows of t.
  """
  rows: int
  o: int
  y: int
  warps: int
  stages: int
  whole: int = 0


def _forward_size(width, dtype):
  if dtype == jnp.float32:
    return _Size(64, 32, min(padded(width), 64), 4, 2)
  return _Size(128, 64, min(padded(width), 128), 8, 3)


def _backward_size(width, dtype):
  lanes = padded(width)
  if dtype == jnp.float32:
    return _Size(32, min(lanes, 128), 32, 8, 2, 256)
  columns = min(lanes, 128 if width <= 512 else 256)
  return _Size(64, columns, 32, 8 if lanes > 128 else 4, 3, 512)


def _plan(o_NxE, w_ExD, size, options, whole=False):
  """Returns a plan with o, W and y each as one sequence of one head."""
  (n, e), d = o_NxE.shape, w_ExD.shape[1]

  def shape(length, width, rows, columns):
    return Shape(1, length, 1, width, False, rows, columns)

  return _Plan(
      shape(n, e, size.rows, size.o), shape(e, d, size.o, size.y),
      shape(n, d, size.rows, size.y), options.eps,
      Tools(options.interpret is not None), whole)


def _run(name, kernel, plan, size, programs, ins, outs, options):
  return triton.call(name, kernel, ins, outs, grid=(programs,),
                     warps=size.warps, stages=size.stages,
                     interpret=options.interpret, plan=plan)


@dataclasses.dataclass(frozen=True)
class _Plan:
  """Blocks of o [N, E], W [E, D], y [N, D]; `whole`: rows of dy W^T are whole.
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


def _outputs(ins, outs, *, plan):
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


def _gradients(ins, outs, *, plan):
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
