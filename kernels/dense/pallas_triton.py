"""One Triton kernel for both gradients of a narrow dense layer.

  dx = dy W^T,  dW = x^T dy

Two matmuls would each read dy, which for a small W costs more than the
multiplications. A program keeps dW in its registers and reads each block of
tokens once. XLA sums the dW of the programs in a fixed order. Matmuls of
float32 are single TF32 matmuls, XLA's default on these devices.
"""

import jax
import jax.numpy as jnp

from lra.kernels import dispatch, triton
from lra.kernels.triton import Place, Plan, Shape, Tools, Walk, padded, zeros

# Most entries of W. They take 48 or 64 registers of each thread; with more, an
# H200 would spill registers.
MOST = {'float32': 12288, 'bfloat16': 16384}
COLUMNS = 64  # columns of dy and W that are loaded at a time
WARPS = 8
ROWS = {'float32': 32, 'bfloat16': 64}
# Settings of JAX's matmul precision, for float32, that allow TF32.
PRECISIONS = (None, 'default', 'fastest', 'tensorfloat32')


def supported(ins, outs, dtype):
  dtype = jnp.dtype(dtype)
  if dtype.name not in MOST:
    raise NotImplementedError(f'pallas_triton does not support {dtype}')
  if padded(ins) * _whole(outs) > MOST[dtype.name]:
    raise NotImplementedError('pallas_triton supports weights of up to '
                              f'{MOST[dtype.name]} entries, sides rounded up, '
                              f'got {ins} x {outs}')
  precision = jax.config.jax_default_matmul_precision
  if dtype == jnp.float32 and precision not in PRECISIONS:
    raise NotImplementedError(f'pallas_triton has no precision {precision!r}')
  triton.check()


def gradients(x, w_KxM, dy):
  """Returns the gradients of x W: (dx in the dtype of x, dW float32 [K, M]).

  x is [..., K] and dy [..., M], all float32 or all bfloat16.
  """
  x_NxK = triton.rows(x)
  (n, ins), outs = x_NxK.shape, w_KxM.shape[1]
  rows, columns = ROWS[x_NxK.dtype.name], _columns(outs)
  shape = Shape(1, n, 1, ins, False, rows, padded(ins))
  of_dy = Shape(1, n, 1, outs, False, rows, columns)
  of_w = Shape(1, ins, 1, outs, False, padded(ins), columns)
  parts, per_part = triton.cut(n, 1, rows, per_core=1)
  interpret = dispatch.interpret_params()
  tools = Tools(interpret is not None, exact=False)
  plan = Plan(shape, parts, per_part, (of_dy, of_w), tools)
  found = triton.call(
      'dense_gradients', _gradients,
      {'x': x_NxK, 'w': w_KxM, 'dy': triton.rows(dy)},
      {'dx': (x_NxK.shape, x_NxK.dtype),
       'dw': ((parts * ins, outs), jnp.float32)},
      grid=(1, parts, 1), warps=WARPS, stages=2, interpret=interpret, plan=plan)
  dw_KxM = found['dw'].reshape(parts, ins, outs).sum(0)
  return found['dx'].reshape(x.shape), dw_KxM


def _columns(outs):
  return min(COLUMNS, padded(outs))


def _whole(outs):
  return -(-outs // _columns(outs)) * _columns(outs)


def _gradients(ins, outs, *, plan):
  """Computes dx of one part of the tokens and the part's sum for dW."""
  of_w, walk = plan.options[1], Walk(plan)
  at_x = walk.at
  at_dy, at_w = (Place(s, at_x.b, at_x.h) for s in plan.options)
  size = of_w.columns
  blocks = [(c * size, size) for c in range(of_w.column_blocks)]

  def step(n, again, sums):
    inside = at_x.valid(None, n)
    x = at_x.load(ins.x, n, inside)
    dx, added = zeros(plan.shape.rows, plan.shape.lanes), []
    for block, dw in zip(blocks, sums, strict=True):
      dy = at_dy.load(ins.dy, n, inside, block=block)
      w = at_w.load(ins.w, 0, at_w.valid(None, 0), block=block)
      dx += plan.tools.dot(dy, w, turn_b=True)
      added.append(dw + plan.tools.dot(x, dy, turn_a=True))
    at_x.store(outs.dx, again, None, dx)
    return tuple(added)

  start = zeros(of_w.rows, of_w.columns)
  sums = walk.run(step, (start,) * len(blocks))
  at_part = Place(of_w, walk.part, at_x.h)
  for block, dw in zip(blocks, sums, strict=True):
    at_part.store(outs.dw, 0, None, dw, block=block)
