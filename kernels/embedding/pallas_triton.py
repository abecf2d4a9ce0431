"""Gradient of a small embedding table in Triton.

A program keeps the gradient of all ids for a block of columns in its registers.
It walks over blocks of tokens and adds one_hot(ids)^T dy of each, a matmul on
tensor cores. XLA sums the results of the programs in a fixed order.

0 and 1 are exact in bfloat16, and a float32 number is the sum of three bfloat16
numbers. So three bfloat16 matmuls with float32 sums add no rounding error.
"""

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from lra.kernels import dispatch, triton
from lra.kernels.triton import Place, Plan, Shape, Tools, Walk, padded, zeros

MOST = 32768  # sums in a program: 128 registers in each thread of 8 warps
LARGEST = 512  # most ids of a table
ROWS = 32


def supported(size, dtype):
  if size > LARGEST:
    raise NotImplementedError('pallas_triton supports tables of up to '
                              f'{LARGEST} ids, got {size}')
  triton.check(dtype)


def gradient(ids, dy, size):
  """Returns float32 [V, D], the sum of the gradients dy [..., D] of each id.

  ids are integers [...]; those outside of 0 to V - 1 are left out.
  """
  dy_NxD = triton.rows(dy)
  n, width = dy_NxD.shape
  columns = min(padded(width), MOST // padded(size), 128)
  shape = Shape(1, n, 1, width, False, ROWS, columns)
  parts, per_part = triton.cut(n, shape.column_blocks, ROWS, per_core=1)
  interpret = dispatch.interpret_params()
  plan = Plan(shape, parts, per_part, size, Tools(interpret is not None))
  outs = triton.call('table_gradient', _sums,
                     {'ids': ids.reshape(-1).astype(jnp.int32), 'dy': dy_NxD},
                     {'sums': ((parts * size, width), jnp.float32)},
                     grid=(shape.column_blocks, parts, 1),
                     warps=8 if padded(size) * columns > MOST // 4 else 4,
                     stages=2, interpret=interpret, plan=plan)
  return outs['sums'].reshape(parts, size, width).sum(0)


def _sums(ins, outs, *, plan):
  shape, size, walk = plan.shape, plan.options, Walk(plan, by_columns=True)
  at, ids = walk.at, padded(size)
  rows = lax.broadcasted_iota(jnp.int32, (ids, 1), 0)

  def step(n, again, sums):
    inside = at.valid(None, n)
    token = ins.ids.at[pl.ds(n * shape.rows, shape.rows)]
    # Rows beyond the end get -1, which is no id.
    found = (plt.load(token) if inside is None
             else plt.load(token, mask=inside, other=-1))
    which = (rows == found[None]).astype(jnp.bfloat16)
    dy = at.load(ins.dy, n, inside, block=walk.block)
    for short in _shorts(dy):
      sums += plan.tools.dot(which, short)
    return sums

  sums = walk.run(step, zeros(ids, shape.columns))
  table = Shape(1, size, 1, shape.width, False, ids, shape.columns)
  at_part = Place(table, walk.part, at.h)
  at_part.store(outs.sums, 0, None, sums, block=walk.block)


def _shorts(x):
  """Splits x into bfloat16 arrays whose sum is exactly x."""
  if x.dtype == jnp.bfloat16:
    return [x]
  shorts = []
  for _ in range(3):
    # Clears bits, because a compiler may drop a cast to bfloat16 and back.
    bits = lax.bitcast_convert_type(x, jnp.uint32) & jnp.uint32(0xFFFF0000)
    short = lax.bitcast_convert_type(bits, jnp.float32)
    shorts.append(short.astype(jnp.bfloat16))
    x = x - short
  return shorts
